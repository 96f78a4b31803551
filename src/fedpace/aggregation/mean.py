"""The weighted mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, Stream, Sums, WeightedSum, rules


@rules.register("mean")
class Mean(Rule):
    """Federated averaging: Δ = Σ pᵢuᵢ with pᵢ = wᵢ / Σw (McMahan et al., 2017).

    Memory: one vector. Time: O(Nd).

    >>> Mean()(torch.tensor([[1.0, 2.0], [3.0, -2.0]]))
    tensor([2., 0.])
    """

    @property
    def beyond_sums(self) -> None:
        """Nothing: it is made of sums."""

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _MeanStream(size, dtype)


class _MeanStream(Stream):
    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._sum = WeightedSum(size, dtype)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._sum.add(update, weight)

    def absorb(self, sums: Sums) -> None:
        self._sum.absorb(sums)

    def finish(self) -> Tensor:
        return self._sum.mean()
