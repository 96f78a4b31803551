"""A client per value of a column."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedpace.core import DataError, PartitionError, did_you_mean
from fedpace.data.examples import Examples
from fedpace.data.partitions._partition import Assignment, Partition, partitions


@partitions.register("by")
class By(Partition):
    """Clients as the data have them: everyone with the same value in a ``column`` (a hospital, an author) is one.

    Clients with fewer than ``least`` examples are left out. If one is ``held_out``, it does not take part: all its
    examples are the test set. Nothing is random.

    Parameters: ``column``, by default the data's domains; ``held_out``, a value of it; ``least``.
    """

    column: str = "domain"
    held_out: str | None = None
    least: int = Field(1, ge=1)

    @property
    def merges(self) -> bool:
        """Who is held out is so with all examples."""
        return super().merges or self.held_out is not None

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """One sort, however many clients there are."""
        try:
            column = examples.column(self.column)
        except DataError as error:
            raise PartitionError(f"partition 'by': {error}") from None
        counts = np.bincount(column.values, minlength=len(column.names))
        indices = np.split(np.argsort(column.values, kind="stable"), np.cumsum(counts)[:-1])
        clients = dict(zip(column.names, indices, strict=True))
        if self.held_out is not None and self.held_out not in clients:
            raise PartitionError(
                f"partition 'by': unknown {self.column} '{self.held_out}'; {did_you_mean(self.held_out, clients)}"
            )
        test = None if self.held_out is None else clients.pop(self.held_out)
        kept = {name: own for name, own in clients.items() if len(own) >= self.least}
        return Assignment(list(kept.values()), tuple(kept), test)
