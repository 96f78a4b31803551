"""What a partition is: a rule that deals a pool of examples to clients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedpace.core import Named, PartitionError, Registry
from fedpace.data.dataset import Dataset, Indices

Concentration = Annotated[float, Field(gt=0, le=1e100)]
"""The parameter of a Dirichlet distribution; shares are equal long before numpy's overflow to NaN."""


@dataclass(frozen=True)
class Assignment:
    """Indices into the pool: per client for training, and where the partition makes them, test sets.

    ``tests`` is one test split per client, ``held_out`` a global test set.
    """

    train: list[Indices]
    names: tuple[str, ...] | None = None
    tests: list[Indices] | None = None
    held_out: Indices | None = None


class Partition(Named, ABC):
    """Deals the ``pool`` ("train", or "all": train and test set merged) to clients.

    A partition of the pool "all" brings its own test set: ``tests`` or ``held_out``.
    """

    pool: ClassVar[Literal["train", "all"]] = "train"

    @abstractmethod
    def assign(self, dataset: Dataset, rng: np.random.Generator) -> Assignment:
        """Deal the examples; all randomness comes from ``rng``."""


class ClientsPartition(Partition, ABC):
    """A partition over a chosen number of clients."""

    clients: int = Field(3, ge=1)

    def require(self, dataset: Dataset, per_client: int) -> None:
        """Fail early if there cannot be ``per_client`` examples for each client."""
        if len(dataset) < self.clients * per_client:
            raise PartitionError(
                f"partition '{self.registered_name()}': {self.clients} clients with at least {per_client} examples "
                f"each need {self.clients * per_client} examples, found {len(dataset)}; use fewer clients"
            )


class FewClassesPartition(ClientsPartition, ABC):
    """A partition that gives each client a few of the classes."""

    clients: int = Field(10, ge=1)  # with the usual three, two classes each would not cover ten classes
    classes_per_client: int = Field(2, ge=1)

    def present(self, dataset: Dataset) -> Indices:
        """The classes that have examples; an error if a client is to have more classes than those."""
        classes = np.unique(dataset.labels)
        if len(classes) < self.classes_per_client:
            raise PartitionError(
                f"partition '{self.registered_name()}': {self.classes_per_client} classes per client are more than the "
                f"{len(classes)} that the data have; use fewer"
            )
        return classes


def split_tests(hands: list[Indices], share: float, rng: np.random.Generator) -> tuple[list[Indices], list[Indices]]:
    """Split each client's examples at random: ``share`` of them, rounded up, for testing, and at least one to train."""
    train, tests = [], []
    for hand in hands:
        shuffled = rng.permutation(hand)
        cut = max(len(hand) - math.ceil(share * len(hand)), 1)
        train.append(shuffled[:cut])
        tests.append(shuffled[cut:])
    return train, tests


partitions: Registry[Partition] = Registry("partition", Partition)
