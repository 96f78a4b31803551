"""A bound that follows the norms of earlier rounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from pydantic import Field

from fedpace.server.clipping._clipping import Clipping, clippings


@clippings.register("adaptive")
class Adaptive(Clipping):
    """The bound C moves geometrically to where a ``quantile`` of the norms lies below it (Andrew et al., 2021).

    C ← C · exp(−``rate`` · (b − ``quantile``)), where b is the share of clients with ‖uᵢ‖ ≤ C; it begins at ``first``.
    What clients send in a round changes the bound of the next one, and by at most e^``rate``: no update is kept.
    C is part of the server's state.

    >>> round(Adaptive(first=1.0).remembers(1.0, [0.5, 3.0, 4.0, 5.0]), 4)  # a quarter lies below, half is wanted
    1.0513
    """

    quantile: float = Field(0.5, gt=0, lt=1)
    rate: float = Field(0.2, gt=0, le=10)
    first: float = Field(0.1, gt=0, allow_inf_nan=False)

    def bound(self, norms: Sequence[float], remembered: float | None) -> float:
        """Where the last exchange left it."""
        return self.first if remembered is None else remembered

    def remembers(self, bound: float, norms: Sequence[float]) -> float:
        """C after one more exchange."""
        return self.moved(bound, sum(norm <= bound for norm in norms) / len(norms)) if norms else bound

    def moved(self, bound: float, share: float) -> float:
        """C after an exchange in which a ``share`` of the norms lay below it."""
        return min(max(bound * exp(-self.rate * (share - self.quantile)), 1e-30), 1e30)
