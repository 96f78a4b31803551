"""Dampening by agreement that knows how large the clients' values are."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, Stream, WeightedSum, rules
from fedpace.aggregation._signs import blocks


@rules.register("magnitude_dampened")
class MagnitudeDampened(Rule):
    """Each coordinate of the mean is scaled by how much of the clients' movement survives in it (ours).

    W = |Σ pᵢuᵢ| / Σ pᵢ|uᵢ|, result Δ ⊙ W with Δ = Σ pᵢuᵢ. Where :class:`Dampened` counts heads, this weighs them: a
    client that hardly moves a coordinate has little say about it. W is 1 where all signs agree, 0 where all cancels.
    Memory: two vectors, and a third while a client is added. Time: O(Nd).

    >>> MagnitudeDampened()(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3.0000, -0.4286])
    """

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _MagnitudeStream(size, dtype)


class _MagnitudeStream(Stream):
    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._sum, self._moved = WeightedSum(size, dtype), WeightedSum(size, dtype)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._sum.add(update, weight)
        self._moved.add(update.abs(), weight)

    def finish(self) -> Tensor:
        mean, moved = self._sum.mean(), self._moved.mean()
        factors = 0.0
        for part in blocks(len(mean)):
            factor = torch.where(moved[part] > 0, mean[part].abs() / moved[part], 0.0).clamp_(max=1.0)
            factors += float(factor.sum())
            mean[part] *= factor
        self.diagnostics = {"mean_factor": factors / max(len(mean), 1)}
        return mean
