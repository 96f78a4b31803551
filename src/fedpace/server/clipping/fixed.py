"""A bound that is known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedpace.server.clipping._clipping import Clipping, clippings


@clippings.register("fixed")
class Fixed(Clipping):
    """No update is longer than ``norm`` (McMahan et al., 2018).

    >>> Fixed(norm=2.0).bound((), None)
    2.0
    """

    norm: float = Field(1.0, gt=0, allow_inf_nan=False)

    def bound(self, norms: Sequence[float], remembered: float | None) -> float:
        """The same in every round."""
        return self.norm
