"""Centred clipping."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._distances import DistanceRule, distances_from
from fedpace.aggregation._rule import Diagnostics, minority, rules


@rules.register("centred_clipping")
class CentredClipping(DistanceRule):
    """The mean, in which nobody pulls further than a radius from the centre (Karimireddy et al., 2021).

    v ← v + (1/N) Σ (uᵢ − v) · min(1, τ / ‖uᵢ − v‖), ``iterations`` times. τ is the ``radius``, or, without one, the
    median of the distances at each step. Karimireddy et al. start at the last aggregate, because their clients send
    momentum; here clients send differences to the model that they were given, and v starts at 0. Samples do not count.
    Memory: N vectors. Time: N²d.

    >>> CentredClipping(radius=1.0, iterations=1)(torch.tensor([[1.0], [0.5], [900.0], [0.5]]))
    tensor([0.7500])
    """

    radius: float | None = Field(None, gt=0, allow_inf_nan=False)
    iterations: int = Field(5, ge=1)

    def bears(self, clients: int) -> int:
        """Less than half; each of those who pull does so, but no further than others."""
        return minority(clients)

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Those of the last centre."""
        centre = torch.zeros_like(weights)
        for _ in range(self.iterations):
            distances = distances_from(gram_matrix, centre)
            radius = distances.median() if self.radius is None else self.radius
            pull = torch.where(distances > radius, radius / distances, 1.0)
            centre = centre * (1 - pull.mean()) + pull / len(pull)
        return centre, {"clipped": int((pull < 1).sum())}
