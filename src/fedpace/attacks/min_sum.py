"""Together no further from the honest than an honest client is."""

from __future__ import annotations

from torch import Tensor

from fedpace.attacks._attack import attacks
from fedpace.attacks._furthest import Furthest


@attacks.register("min_sum")
class MinSum(Furthest):
    """The sum of squared distances to the honest is at most the largest such sum of an honest client."""

    def _allowed(self, squares: Tensor) -> float:
        return squares.sum(1).max().item()

    def _reached(self, squares: Tensor) -> float:
        return squares.sum().item()
