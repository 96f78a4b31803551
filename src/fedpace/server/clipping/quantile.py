"""A bound from the norms of the same round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedpace.server.clipping._clipping import Clipping, clippings


@clippings.register("quantile")
class Quantile(Clipping):
    """No update is longer than a ``quantile`` of the round's norms: at 0.5, their median.

    Clients that sent zero have no say. Of N others, (1 − ``quantile``)(N − 1) liars cannot raise the bound above the
    longest honest update. Cost: all updates of the round are kept.

    >>> Quantile(quantile=0.5).bound([1.0, 2.0, 900.0, 0.0], None)
    2.0
    """

    needs_all: ClassVar[bool] = True
    quantile: float = Field(0.5, gt=0, lt=1)

    def bound(self, norms: Sequence[float], remembered: float | None) -> float:
        """The quantile, between two norms in proportion."""
        moved = [norm for norm in norms if norm > 0]
        return float(np.quantile(moved, self.quantile)) if moved else 0.0
