"""The geometric median."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._distances import DistanceRule, distances_from, squared_distances
from fedpace.aggregation._rule import Diagnostics, minority, rules

SETTLED = 1e-10  # coefficients that change by a smaller part of themselves are those of the median


@rules.register("geometric_median")
class GeometricMedian(DistanceRule):
    """The point with the smallest sum of distances to all updates (RFA, Pillutla et al. 2022).

    v = argmin Σ ‖uᵢ − v‖ by smoothed Weiszfeld steps from the mean, v ← Σ aᵢuᵢ / Σ aᵢ with aᵢ = 1 / max(ν, ‖uᵢ − v‖),
    until v rests or after ``iterations``. ν is ``smoothing`` times the radius of the smallest ball around a client
    that holds more than half of all, so that attackers cannot choose it; if that is zero, the client is the median.
    Samples do not count (Pillutla et al. let them). Memory: N vectors. Time: N²d.

    >>> GeometricMedian()(torch.tensor([[0.0, 2.0], [0.0, -2.0], [1.0, 0.0], [900.0, 0.0]])).round(decimals=4)
    tensor([1., 0.])
    """

    smoothing: float = Field(1e-6, gt=0, allow_inf_nan=False)
    iterations: int = Field(1000, ge=1)

    def bears(self, clients: int) -> int:
        """Less than half."""
        return minority(clients)

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Those of the last step."""
        clients = len(gram_matrix)
        radii = squared_distances(gram_matrix).sqrt().kthvalue(clients // 2 + 1).values
        nu = self.smoothing * radii.min()
        if nu == 0:
            at_majority = (radii == 0).double()
            return at_majority / at_majority.sum(), {}
        found = torch.full_like(weights, 1 / clients)
        for _ in range(self.iterations):
            pull = 1 / distances_from(gram_matrix, found).clamp_min(nu)
            before, found = found, pull / pull.sum()
            if ((found - before).abs() <= SETTLED * found).all():
                break
        return found, {}
