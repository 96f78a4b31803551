"""Gradient harmonisation by projection."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._gram_rule import GramRule
from fedpace.aggregation._rule import Diagnostics, rules


@rules.register("harmonised_projection")
class HarmonisedProjection(GramRule):
    """Both clients of a conflicting pair lose what opposes the other, then the mean (Zhang, Sun & Chen, 2023).

    For every pair with a negative inner product, each is projected on the normal plane of the other, using copies taken
    when the pair is processed. Pairs go in lexicographic order, because the result depends on it. No parameters.
    """

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Projections as operations on coefficient vectors over the Gram matrix: no d-sized work."""
        clients = len(gram_matrix)
        lengths = gram_matrix.diagonal().clamp_min(0).sqrt()
        mixes = torch.eye(clients, dtype=torch.float64)  # row i: vector i as a combination of the original updates
        for i in range(clients):
            for j in range(i + 1, clients):
                a, b = mixes[i].clone(), mixes[j].clone()
                inner, aa, bb = a @ gram_matrix @ b, a @ gram_matrix @ a, b @ gram_matrix @ b
                # What projections cancelled is zero up to rounding: it conflicts with nobody.
                reach_a, reach_b = a.abs() @ lengths, b.abs() @ lengths
                cancelled = aa <= NOISE * reach_a**2 or bb <= NOISE * reach_b**2
                if not cancelled and inner < -NOISE * reach_a * reach_b:
                    mixes[i] = a - inner / bb * b
                    mixes[j] = b - inner / aa * a
        return weights @ mixes, {}
