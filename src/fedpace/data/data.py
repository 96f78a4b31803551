"""A named data set, before it is dealt to clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedpace.core import ConfigError, DataError, PartitionError, numpy_stream, parse
from fedpace.data._encoded import encoded
from fedpace.data._names import listed
from fedpace.data.dataset import Dataset, Indices
from fedpace.data.federation import Federation, Shard, kind_of_targets
from fedpace.data.partitions import Assignment, Partition, partitions
from fedpace.data.shifts import Shift, shifts

HELD_OUT = 0.2


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test examples under a name: what :func:`fedpace.data.load` returns.

    Where there is no test set and the partition brings none, a fifth of each class is held out: always the same
    examples, whatever the seed of a run, so that runs are compared on one test set.
    """

    name: str
    train: Dataset
    test: Dataset | None = None

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
        partition: str | Partition | Mapping[str, Any] = "dirichlet",
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

        >>> from fedpace.data import load
        >>> load("digits").partition("shards", clients=5, classes_per_client=2)
        Federation('digits/shards': 5 clients with 1438 examples, 359 test examples, 10 classes, shape (1, 8, 8))
        >>> load("digits").partition("iid", clients=5, test_share=0.25)
        Federation('digits/iid': 5 clients with 1347 examples, 450 test examples, 10 classes, shape (1, 8, 8))
        >>> load("digits").partition("iid", shift="coloured").shape
        (3, 8, 8)
        """
        if isinstance(partition, str):
            partition = {"name": partition, **parameters}
        elif parameters:
            raise ConfigError(f"partition: expected a name beside parameters {sorted(parameters)}, found {partition!r}")
        chosen = parse(partitions, partition)
        federation = encoded(self._dealt(chosen, numpy_stream(seed, "partition")))
        return federation if shift is None else federation.shifted(parse(shifts, shift), seed)

    def _dealt(self, partition: Partition, rng: np.random.Generator) -> Federation:
        name = f"{self.name}/{partition.registered_name()}"
        pool, test = (self._merged, None) if partition.merges else self._split
        if partition.limit is not None and partition.limit < len(pool):
            pool = pool.take(np.sort(rng.choice(len(pool), partition.limit, replace=False)))
        dealt = partition.assign(pool, rng)
        names = dealt.names or tuple(map(str, range(len(dealt.train))))
        if not partition.test_share:
            return Federation(name, _shards(pool, dealt.train), names, _test(name, pool, test, dealt))
        train, tests = _split_tests(dealt.train, partition.test_share, rng)
        held_out = np.concatenate(tests) if dealt.held_out is None else dealt.held_out
        return Federation(name, _shards(pool, train), names, Shard(pool, held_out), _shards(pool, tests))

    @cached_property
    def _merged(self) -> Dataset:
        return self.train if self.test is None else self.train.joined(self.test)

    @cached_property
    def _split(self) -> tuple[Dataset, Dataset]:
        return (self.train, self.test) if self.test is not None else hold_out(self.train, "held-out test")


def hold_out(dataset: Dataset, stream: str) -> tuple[Dataset, Dataset]:
    """Split off a fifth of each class; ``stream`` names the randomness, which does not depend on the run's seed."""
    rng = numpy_stream(0, stream)
    groups = dataset.by_class(rng) if dataset.classes else [rng.permutation(len(dataset))]
    held = [indices[: round(HELD_OUT * len(indices))] for indices in groups]
    test = np.sort(np.concatenate(held))
    if not len(test):
        raise DataError(f"{len(dataset)} examples are too few to hold out a test set; bring a test set or more data")
    return dataset.take(np.setdiff1d(np.arange(len(dataset)), test)), dataset.take(test)


def _split_tests(hands: list[Indices], share: float, rng: np.random.Generator) -> tuple[list[Indices], list[Indices]]:
    """Split each client's examples at random: ``share`` of them, rounded up, for testing, and at least one to train."""
    train, tests = [], []
    for hand in map(rng.permutation, hands):
        if len(hand) < 2:
            raise PartitionError(
                f"test_share = {share}: expected 2 examples or more of every client, found a client with {len(hand)}; "
                "use fewer clients, more data or test_share = 0"
            )
        cut = max(len(hand) - math.ceil(share * len(hand)), 1)
        train.append(hand[:cut])
        tests.append(hand[cut:])
    return train, tests


def _shards(pool: Dataset, hands: list[Indices]) -> tuple[Shard, ...]:
    return tuple(Shard(pool, indices) for indices in hands)


def _test(name: str, pool: Dataset, test: Dataset | None, dealt: Assignment) -> Shard:
    if dealt.held_out is not None:
        return Shard(pool, dealt.held_out)
    if test is None:
        raise PartitionError(
            f"'{name}': a partition of the pool \"all\" must bring held_out or a test_share, found neither"
        )
    return Shard(test, np.arange(len(test)))
