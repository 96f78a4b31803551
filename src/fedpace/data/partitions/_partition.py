"""What a partition is: a rule that deals a pool of examples to clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedpace.core import Named, PartitionError, Registry
from fedpace.data.examples import Examples, Indices

Concentration = Annotated[float, Field(gt=0, le=1e100)]
"""The parameter of a Dirichlet distribution; shares are equal long before numpy's overflow to NaN."""

Share = Annotated[float, Field(ge=0, lt=1)]
"""A part of each client's examples, never all of them."""


@dataclass(frozen=True)
class Assignment:
    """Indices into the pool: those of each client and, where the partition holds it out, of a global test set.

    The clients' are :class:`Hands` where there may be very many of them, or any list of arrays.
    """

    train: Sequence[Indices]
    names: Sequence[str] | None = None
    held_out: Indices | None = None


class Partition(Named, ABC):
    """Deals the ``pool`` ("train", or "all": train and test set merged) to clients.

    A partition of the pool "all" brings its own test set, ``held_out``, unless clients have theirs. They do with a
    ``test_share`` above 0, which every partition takes (personalised methods need it): the pool is then "all", and of
    each client's examples a random share, rounded up, is set apart. If nothing is held out, the global test set is the
    tests of all clients together: what one model for all and a model for each are measured on alike.

    ``limit`` is the largest number of examples of the pool that are used, drawn at random; the others are nobody's.
    """

    pool: ClassVar[Literal["train", "all"]] = "train"

    test_share: Share = 0.0
    limit: int | None = Field(None, ge=1)

    @property
    def merges(self) -> bool:
        """Whether train and test set are dealt together."""
        return self.pool == "all" or self.test_share > 0

    @abstractmethod
    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Deal the examples; all randomness comes from ``rng``."""


class ClientsPartition(Partition, ABC):
    """A partition over a chosen number of clients."""

    clients: int = Field(3, ge=1)

    def require(self, examples: Examples, per_client: int) -> None:
        """Fail early if there cannot be ``per_client`` examples for each client."""
        if len(examples) < self.clients * per_client:
            raise PartitionError(
                f"partition '{self.registered_name()}': {self.clients} clients with at least {per_client} examples "
                f"each need {self.clients * per_client} examples, found {len(examples)}; use fewer clients"
            )


class FewClassesPartition(ClientsPartition, ABC):
    """A partition that gives each client a few of the classes."""

    clients: int = Field(10, ge=1)  # with the usual three, two classes each would not cover ten classes
    classes_per_client: int = Field(2, ge=1)

    def present(self, examples: Examples) -> Indices:
        """The classes that have examples; an error if a client is to have more classes than those."""
        classes = np.unique(examples.labels)
        if len(classes) < self.classes_per_client:
            raise PartitionError(
                f"partition '{self.registered_name()}': {self.classes_per_client} classes per client are more than the "
                f"{len(classes)} that the data have; use fewer"
            )
        return classes

    def covered(self, examples: Examples) -> Indices:
        """The classes that have examples; an error if all clients together are to have fewer classes than those."""
        classes = self.present(examples)
        if self.clients * self.classes_per_client < len(classes):
            raise PartitionError(
                f"partition '{self.registered_name()}': {self.clients} clients × {self.classes_per_client} classes are "
                f"too few for {len(classes)} classes; use more clients or more classes per client"
            )
        return classes


partitions: Registry[Partition] = Registry("partition", Partition)
