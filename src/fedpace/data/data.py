"""A named data set, before it is dealt to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedpace.core import ConfigError, DataError, PartitionError, numpy_stream, parse
from fedpace.data.dataset import Dataset
from fedpace.data.federation import Federation, Shard
from fedpace.data.partitions import Assignment, Partition, partitions
from fedpace.data.shifts import Shift, shifts

HELD_OUT = 0.2
MOST_NAMES = 10


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
            for what in ("classes", "shape"):
                train, test = getattr(self.train, what), getattr(self.test, what)
                if train != test:
                    raise DataError(f"data '{self.name}': train and test differ in {what}: {train} and {test}")

    def __repr__(self) -> str:
        test = "no test set" if self.test is None else f"{len(self.test)} test examples"
        names = self.train.domain_names
        domains = f", domains {', '.join(names)}" if names else ""
        if len(names) > MOST_NAMES:
            domains = f", {len(names)} domains"
        return (
            f"Data('{self.name}': {len(self.train)} training examples, {test}, {len(self.train.classes)} classes, "
            f"shape {self.train.shape}{domains})"
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

        ``partition`` is a registered name with its ``parameters``, a table with ``name``, or a partition. ``shift``
        (a name, a table or a shift) lets each client see its examples differently; tests of a client see them as the
        client does, and the global test set as no client does.

        >>> from fedpace.data import load
        >>> load("digits").partition("shards", clients=5, classes_per_client=2)
        Federation('digits/shards': 5 clients with 1438 examples, 359 test examples, 10 classes, shape (1, 8, 8))
        >>> load("digits").partition("iid", shift="coloured").shape
        (3, 8, 8)
        """
        if isinstance(partition, str):
            partition = {"name": partition, **parameters}
        elif parameters:
            raise ConfigError(f"partition: expected a name beside parameters {sorted(parameters)}, found {partition!r}")
        chosen = parse(partitions, partition)
        train, test = (self._merged, None) if chosen.pool == "all" else self._split
        assignment = chosen.assign(train, numpy_stream(seed, "partition"))
        federation = _federation(f"{self.name}/{chosen.registered_name()}", train, test, assignment)
        return federation if shift is None else federation.shifted(parse(shifts, shift), seed)

    @cached_property
    def _merged(self) -> Dataset:
        return self.train if self.test is None else self.train.joined(self.test)

    @cached_property
    def _split(self) -> tuple[Dataset, Dataset]:
        return (self.train, self.test) if self.test is not None else hold_out(self.train, "held-out test")


def hold_out(dataset: Dataset, stream: str) -> tuple[Dataset, Dataset]:
    """Split off a fifth of each class; ``stream`` names the randomness, which does not depend on the run's seed."""
    held = [indices[: round(HELD_OUT * len(indices))] for indices in dataset.by_class(numpy_stream(0, stream))]
    test = np.sort(np.concatenate(held))
    if not len(test):
        raise DataError(f"{len(dataset)} examples are too few to hold out a test set; bring a test set or more data")
    return dataset.take(np.setdiff1d(np.arange(len(dataset)), test)), dataset.take(test)


def _federation(name: str, pool: Dataset, test: Dataset | None, assignment: Assignment) -> Federation:
    names = assignment.names or tuple(map(str, range(len(assignment.train))))
    clients = tuple(Shard(pool, indices) for indices in assignment.train)
    client_tests = None if assignment.tests is None else tuple(Shard(pool, indices) for indices in assignment.tests)
    if assignment.held_out is not None:
        return Federation(name, clients, names, Shard(pool, assignment.held_out), client_tests)
    if assignment.tests is not None:
        return Federation(name, clients, names, Shard(pool, np.concatenate(assignment.tests)), client_tests)
    if test is None:
        raise PartitionError(f"'{name}': a partition of the pool \"all\" must bring tests or held_out, found neither")
    return Federation(name, clients, names, Shard(test, np.arange(len(test))))
