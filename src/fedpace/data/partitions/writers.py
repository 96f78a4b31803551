"""A client per writer."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from fedpace.core import PartitionError
from fedpace.data.examples import Examples
from fedpace.data.hands import Hands
from fedpace.data.partitions._partition import Assignment, Partition, partitions


@partitions.register("writers")
class Writers(Partition):
    """Each writer is a client, and writers who never take part are the test set (FEMNIST of LEAF, as used by GMA).

    A writer is a domain of the data. Train and test set are merged; writers with too few examples are left out. Those
    held out are chosen at random, and of the others the largest take part. For personalised methods, each client's own
    examples may be split as well or instead: ``held_out = 0, test_share = 0.25`` is PFLlib's way.

    Parameters: ``clients``, all by default; ``min_examples`` of a writer; ``held_out``, the number of test writers, or
    below 1 their share; ``test_share``, the share of each client's examples that is its own test set.
    """

    pool: ClassVar[Literal["train", "all"]] = "all"

    clients: int | None = Field(None, ge=1)
    min_examples: int = Field(10, ge=2)
    held_out: int | float = Field(0.2, ge=0)

    @field_validator("held_out")
    @classmethod
    def _share_or_number(cls, value: int | float) -> int | float:
        if value >= 1 and value != value // 1:
            raise ValueError("expected a number of writers, or a share below 1")
        return value

    @model_validator(mode="after")
    def _some_test(self) -> Writers:
        if not (self.held_out or self.test_share):
            raise ValueError("held_out and test_share: expected one of them above 0 for a test set, found 0 and 0")
        return self

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Hold out writers at random, then take the largest of the others."""
        everyone = _by_writer(examples)
        writers = np.flatnonzero(everyone.sizes >= self.min_examples)
        tested = self._number_held_out(len(writers))
        clients = self.clients or max(len(writers) - tested, 1)
        if len(writers) < clients + tested:
            raise PartitionError(
                f"partition 'writers': {clients} clients and {tested} held-out writers need {clients + tested} writers "
                f"of {self.min_examples} examples or more, found {len(writers)}; use fewer or a smaller min_examples"
            )
        sizes = everyone.sizes[writers]
        held_out, others = np.split(rng.permutation(len(writers)), [tested])
        others.sort()  # so that of equally large ones the first take part
        chosen = np.sort(others[np.argsort(-sizes[others], kind="stable")][:clients])
        test = everyone.chosen(writers[np.sort(held_out)]).joined() if tested else None
        names = tuple(examples.domain_names[writer] for writer in writers[chosen])
        return Assignment(everyone.chosen(writers[chosen]), names, test)

    def _number_held_out(self, writers: int) -> int:
        share = 0 < self.held_out < 1
        return max(round(self.held_out * writers), 1) if share else int(self.held_out)


def _by_writer(examples: Examples) -> Hands:
    """Each writer's examples."""
    if examples.domains is None:
        raise PartitionError(
            "partition 'writers': expected data that name the writer of each example as its domain, found no domains; "
            "add a 'domain' column, or use a partition that needs none, such as 'dirichlet'"
        )
    return Hands.grouped(examples.domains, len(examples.domain_names))
