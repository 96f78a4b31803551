"""No further from any honest client than the honest are from each other."""

from __future__ import annotations

from torch import Tensor

from fedpace.attacks._attack import attacks
from fedpace.attacks._furthest import Furthest


@attacks.register("min_max")
class MinMax(Furthest):
    """The largest distance to an honest client is at most the largest between two honest ones."""

    def _allowed(self, squares: Tensor) -> float:
        return squares.max().item()

    def _reached(self, squares: Tensor) -> float:
        return squares.max().item()
