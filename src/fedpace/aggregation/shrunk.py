"""A control for dampening: the same average shrinkage, without knowing which coordinates conflict."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, ScaledStream, Stream, WeightedSum, rules
from fedpace.aggregation._signs import SignSum


@rules.register("shrunk")
class Shrunk(Rule):
    """The whole mean times the agreement averaged over all coordinates that any client moves.

    Dampening shortens the step as well as bending it. This control shortens it as much and does not bend it, so the
    difference between both is what agreement is worth. Memory: two vectors. Time: O(Nd).

    >>> Shrunk()(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 2.0000, -0.6667])
    """

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _ShrunkStream(size, clients, dtype)


class _ShrunkStream(ScaledStream):
    signs: SignSum

    def __init__(self, size: int, clients: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._sum = WeightedSum(size, dtype)
        self.signs = SignSum(size, clients)
        self._moved = torch.zeros(size, dtype=torch.bool)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._sum.add(update, weight)
        self.signs.add(update)
        self._moved |= update != 0

    def split(self) -> tuple[Tensor, Tensor]:
        factor = self.signs.mean_agreement(int(self._moved.sum()))
        self.diagnostics = {"mean_factor": factor}
        mean = self._sum.mean()
        return mean, mean.new_tensor(factor).expand_as(mean)
