"""Clipping of long updates."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._length import length
from fedpace.aggregation._mixing import Mixing
from fedpace.aggregation._rule import minority, rules


@rules.register("norm_clipping")
class NormClipping(Mixing):
    """The ``rule`` of updates of which none is longer than most (Sun et al., 2019).

    uᵢ · min(1, b / ‖uᵢ‖) with the bound b = ``norm``, or, without one, the median of the clients' norms. It limits what
    an attacker can do with length, not with direction. Each update keeps its weight in the rule: with ``mean``, which
    believes what clients declare, that weighs more than length, so count clients alike where some may lie.
    Memory: N vectors, and what the rule needs. Time: O(Nd), and the rule's.

    >>> NormClipping()(torch.tensor([[3.0, 0.0], [0.0, 3.0], [900.0, 0.0]]))
    tensor([2., 1.])
    """

    norm: float | None = Field(None, gt=0, allow_inf_nan=False)

    def bears(self, clients: int) -> int:
        """As many as the rule does; with one that bears none, less than half, who pull no further than others."""
        return self.rule.bears(clients) or minority(clients)

    def mixes(self, rows: Rows, weights: list[float], seed: int) -> tuple[Tensor, list[float]]:
        """A factor for each client."""
        norms = torch.tensor([length(row) for row in rows.each()], dtype=torch.float64)
        bound = norms.median() if self.norm is None else self.norm
        return torch.where(norms > bound, bound / norms, 1.0).diag(), weights
