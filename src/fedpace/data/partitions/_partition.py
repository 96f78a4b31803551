"""What a partition is: a rule that deals a pool of examples to clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedpace.core import Named, PartitionError, Registry
from fedpace.data.dataset import Dataset, Indices


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


partitions: Registry[Partition] = Registry("partition", Partition)
