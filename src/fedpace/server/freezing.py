"""Elimination of persistent conflict by freezing: coordinates on which clients disagree take no more steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from fedpace.core import Settings


class Freezing(Settings):
    """Each round freezes the coordinates in which clients agreed least, ``per_round`` of all, up to ``share`` (ours).

    A frozen weight keeps its value, clients take no steps there (its pace is 0), and nothing of it is sent any more.
    What clients have been fighting over comes to rest, and the other steps need not adapt to it any more. Zeroing such
    weights, as the paper has it, destroys what they hold. Unlike a threshold on sign agreement, which can only be 1/3
    or 1 with three clients, a ranking by the pace's memory acts at any number of clients.

    Cost: a flag per parameter. It saves ``share`` of what clients send.
    """

    share: float = Field(0.9, gt=0, le=1)
    per_round: float = Field(0.03, gt=0, le=1)

    def widened(self, frozen: Tensor, agreement: Tensor) -> Tensor:
        """The coordinates that are frozen after one more round; those that are stay so.

        >>> Freezing(share=0.5, per_round=0.25).widened(torch.zeros(4, dtype=torch.bool), torch.tensor([3.0, 1, 2, 4]))
        tensor([False,  True, False, False])
        """
        size = len(frozen)
        wanted = min(int(frozen.sum()) + round(self.per_round * size), int(self.share * size))
        order = torch.where(frozen, -1.0, agreement).argsort(stable=True)  # equals by position: results never depend
        widened = frozen.clone()
        widened[order[:wanted]] = True
        return widened


def frozen_by(extras: Mapping[str, Tensor]) -> Tensor | None:
    """The coordinates whose pace is 0 among what goes to clients along with θ: nothing of them is sent. Or no mask.

    >>> frozen_by({"pace": torch.tensor([1.0, 0.0])})
    tensor([False,  True])
    """
    frozen = extras["pace"] == 0 if "pace" in extras else None
    return frozen if frozen is not None and bool(frozen.any()) else None
