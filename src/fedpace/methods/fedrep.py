"""FedRep: a classifier of one's own on a representation for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fedpace.core import Layout
from fedpace.methods._method import Phase, methods
from fedpace.methods._personal import Personal


@methods.register("fedrep")
class FedRep(Personal):
    """First the head is trained on a frozen base, then the base under a frozen head (Collins et al., 2021).

    Only the base is shared. ``head_epochs`` are the epochs of the first phase (1 in PFLlib, 10 in the paper).
    Keeps: the head. Travels: the base, each way. Cost: FedAvg's, and ``head_epochs`` passes that train the head alone.
    """

    in_phases: ClassVar[bool] = True

    head_epochs: int = Field(1, ge=1)

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The head."""
        return name in head

    def phases(self, layout: Layout) -> Sequence[Phase]:
        """Head, then base."""
        return Phase(layout.own, self.head_epochs, "head"), Phase(layout.shared)
