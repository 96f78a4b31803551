"""A named data set, before it is dealt to clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedpace.core import ConfigError, DataError, PartitionError, numpy_stream, parse
from fedpace.data._encoded import encoded
from fedpace.data._many import numbered
from fedpace.data._names import listed
from fedpace.data._natural import HELD_OUT, given, is_given, split_tests
from fedpace.data.examples import Arrays, Examples
from fedpace.data.federation import Federation, kind_of_targets
from fedpace.data.hands import Hands
from fedpace.data.partitions import Assignment, Partition, partitions
from fedpace.data.shard import Shard
from fedpace.data.shards import Dealt
from fedpace.data.shifts import Shift, shifts


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test examples under a name: what :func:`fedpace.data.load` returns.

    Where there is no test set and the partition brings none, a fifth of each class is held out: always the same
    examples, whatever the seed of a run, so that runs are compared on one test set.
    """

    name: str
    train: Examples
    test: Examples | None = None

    def __post_init__(self) -> None:
        if self.test is not None:
            for what, train in self.train.form.items():
                if train != (test := self.test.form[what]):
                    raise DataError(f"data '{self.name}': train and test differ in {what}: {train} and {test}")

    def __repr__(self) -> str:
        test = "no test set" if self.test is None else f"{len(self.test)} test examples"
        domains = f", domains {listed(self.train.domain_names)}" if self.train.domain_names else ""
        shape = f"shape {self.train.shape}" if self.train.schema is None else f"{len(self.train.shape)} columns"
        return (
            f"Data('{self.name}': {len(self.train)} training examples, {test}, {kind_of_targets(self.train)}, "
            f"{shape}{domains})"
        )

    def partition(
        self,
        partition: str | Partition | Mapping[str, Any] | Sequence[Any] = "dirichlet",
        *,
        seed: int = 0,
        shift: str | Shift | Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> Federation:
        """Deal the examples to clients; the same seed gives the same split.

        ``partition`` is a registered name with its ``parameters``, a table with ``name``, or a partition. With the
        parameter ``test_share``, which all of them take, each client has a test set of its own; with ``limit`` no more
        than so many examples are dealt. ``shift`` (a name, a table or a shift) lets each client see its examples
        differently; tests of a client see them as the client does, and the global test set as no client does. A table
        becomes an array of numbers (:class:`fedpace.data.Encoding`), as the training examples of the clients say.

        Clients that are known already are given by their indices into the training examples: a list of lists (with
        ``names=``, if you like), a mapping from name to list, or of very many clients :class:`fedpace.data.Hands`. The
        test set is then the data's own. With a ``test_share``, which is a fifth where the data have no test set, each
        client has one of its own.

        >>> from fedpace.data import load
        >>> load("digits").partition("shards", clients=5, classes_per_client=2)
        Federation('digits/shards': 5 clients with 1438 examples, 359 test examples, 10 classes, shape (1, 8, 8))
        >>> load("digits").partition("iid", clients=5, test_share=0.25)
        Federation('digits/iid': 5 clients with 1347 examples, 450 test examples, 10 classes, shape (1, 8, 8))
        >>> load("digits").partition("iid", shift="coloured").shape
        (3, 8, 8)
        >>> load("digits").partition({"north": [0, 1, 2], "south": [3, 4]}, test_share=0)
        Federation('digits/given': 2 clients with 5 examples, 359 test examples, 10 classes, shape (1, 8, 8))
        """
        federation = encoded(self._federation(partition, seed, parameters))
        return federation if shift is None else federation.shifted(parse(shifts, shift), seed)

    def mapped(self, function: Callable[[Arrays], Arrays]) -> Data:
        """The same data after ``function`` was applied to all inputs at once, those of training and those of testing.

        >>> Data("toy", Examples(np.ones((3, 2), np.float32), np.array([0, 1, 1]), ("a", "b"))).mapped(np.negative)
        Data('toy': 3 training examples, no test set, 2 classes, shape (2,))
        """
        sides = [side for side in (self.train, self.test) if side is not None]
        return Data(self.name, *(replace(side, inputs=function(side.inputs)) for side in sides))

    def _federation(self, partition: Any, seed: int, parameters: dict[str, Any]) -> Federation:
        if is_given(partition):
            return given(f"{self.name}/given", self.train, self.test, partition, seed, parameters)
        if isinstance(partition, str):
            partition = {"name": partition, **parameters}
        elif parameters:
            raise ConfigError(f"partition: expected a name beside parameters {sorted(parameters)}, found {partition!r}")
        return self._dealt(parse(partitions, partition), numpy_stream(seed, "partition"))

    def _dealt(self, partition: Partition, rng: np.random.Generator) -> Federation:
        name = f"{self.name}/{partition.registered_name()}"
        pool, test = (self._merged, None) if partition.merges else self._split
        if partition.limit is not None and partition.limit < len(pool):
            pool = pool.take(np.sort(rng.choice(len(pool), partition.limit, replace=False)))
        dealt = partition.assign(pool, rng)
        hands, names = Hands.of(dealt.train), dealt.names or numbered(len(dealt.train))
        if not partition.test_share:
            return Federation(name, Dealt(pool, hands), names, _test(name, pool, test, dealt))
        train, tests = split_tests(hands, partition.test_share, rng)
        held_out = tests.joined() if dealt.held_out is None else dealt.held_out
        return Federation(name, Dealt(pool, train), names, Shard(pool, held_out), Dealt(pool, tests))

    @cached_property
    def _merged(self) -> Examples:
        return self.train if self.test is None else self.train.joined(self.test)

    @cached_property
    def _split(self) -> tuple[Examples, Examples]:
        return (self.train, self.test) if self.test is not None else hold_out(self.train, "held-out test")


def hold_out(examples: Examples, stream: str) -> tuple[Examples, Examples]:
    """Split off a fifth of each class; ``stream`` names the randomness, which does not depend on the run's seed."""
    rng = numpy_stream(0, stream)
    groups = examples.by_class(rng) if examples.classes else [rng.permutation(len(examples))]
    held = [indices[: round(HELD_OUT * len(indices))] for indices in groups]
    test = np.sort(np.concatenate(held))
    if not len(test):
        raise DataError(f"{len(examples)} examples are too few to hold out a test set; bring a test set or more data")
    return examples.take(np.setdiff1d(np.arange(len(examples)), test)), examples.take(test)


def _test(name: str, pool: Examples, test: Examples | None, dealt: Assignment) -> Shard:
    if dealt.held_out is not None:
        return Shard(pool, dealt.held_out)
    if test is None:
        raise PartitionError(
            f"'{name}': a partition of the pool \"all\" must bring held_out or a test_share, found neither"
        )
    return Shard(test, np.arange(len(test)))
