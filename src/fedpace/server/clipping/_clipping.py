"""What a clipping is: how long an update may be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from fedpace.core import Named, Registry


class Clipping(Named, ABC):
    """The longest norm ‖uᵢ‖ of an exchange. Whatever is longer is shortened to it and keeps its direction.

    Attributes:
        needs_all: Whether the bound follows from the norms of the same exchange, so that all updates are kept first.

    """

    needs_all: ClassVar[bool] = False

    @abstractmethod
    def bound(self, norms: Sequence[float], remembered: float | None) -> float:
        """The bound. ``norms`` are those of the exchange if it ``needs_all``; ``remembered`` is from one before."""

    def remembers(self, bound: float, norms: Sequence[float]) -> float | None:
        """What the next exchange of this kind needs to know: by default nothing."""
        return None


clippings: Registry[Clipping] = Registry("clipping", Clipping)
