"""A client per value of a column."""

from __future__ import annotations

from itertools import compress

import numpy as np
from pydantic import Field

from fedpace.core import DataError, PartitionError, did_you_mean
from fedpace.data.examples import Examples
from fedpace.data.hands import Hands
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
        clients = Hands.grouped(column.values, len(column.names))
        kept, test = clients.sizes >= self.least, None
        if self.held_out is not None:
            if self.held_out not in column.names:
                raise PartitionError(
                    f"partition 'by': unknown {self.column} '{self.held_out}'; "
                    f"{did_you_mean(self.held_out, column.names)}"
                )
            held_out = column.names.index(self.held_out)
            kept[held_out], test = False, clients[held_out]
        if kept.all():
            return Assignment(clients, column.names)
        return Assignment(clients.chosen(np.flatnonzero(kept)), tuple(compress(column.names, kept)), test)
