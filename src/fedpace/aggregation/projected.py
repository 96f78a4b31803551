"""PCGrad."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._gram_rule import GramRule
from fedpace.aggregation._projection import conflicts, sequential
from fedpace.aggregation._rule import Diagnostics, rules


@rules.register("projected")
class Projected(GramRule):
    """Each client loses what opposes others, then the mean (PCGrad, Yu et al. 2020; the mean instead of their sum).

    Projections go client after client, in an order drawn from ``seed``, each on what the last one left. PCGrad draws a
    new order at each step; here the positions in a cohort have the same order in every round, because a rule knows
    nothing but its updates. Equals :class:`ConflictFree` with ``c`` = 0 and ``projection`` = ``sequential``.

    >>> Projected()(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    tensor([0.2500, 0.7500])
    """

    seed: int = 0

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """The mean of the projected updates."""
        gram = gram_matrix.numpy()
        step = sequential(gram, weights.numpy(), self.seed)
        return torch.from_numpy(step), conflicts(gram, step)
