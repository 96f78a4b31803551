"""Agreement that knows how large the clients' values are: how much of their movement survives in the mean?"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._rule import Sums, WeightedSum
from fedpace.aggregation._signs import blocks


class MagnitudeAgreement:
    """Δ = Σ pᵢuᵢ and A = |Δ| / Σ pᵢ|uᵢ| per coordinate, of updates that come one at a time; A = 0 where nobody moved.

    Where a sign sum counts heads, this weighs them: a client that hardly moves a coordinate has little say about it.
    A is 1 where all signs agree and 0 where all cancels. Memory: two vectors, and a third while a client is added.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32) -> None:
        self._net, self._travelled = WeightedSum(size, dtype), WeightedSum(size, dtype)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        """Take one client's update."""
        self._net.add(update, weight)
        self._travelled.add(update.abs(), weight)

    def absorb(self, sums: Sums) -> None:
        """Take updates and their sizes that were summed elsewhere."""
        self._net.absorb(sums)
        self._travelled.absorb(sums.of("sizes"))

    def finish(self) -> tuple[Tensor, Tensor]:
        """Δ and A; call once."""
        mean, agreement = self._net.mean(), self._travelled.mean()
        for part in blocks(len(mean)):
            travelled = agreement[part]
            agreement[part] = torch.where(travelled > 0, mean[part].abs() / travelled, 0.0).clamp_(max=1.0)
        return mean, agreement
