"""How the learning rate of local training changes over a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import cos, pi
from typing import Annotated

from pydantic import Field, SerializeAsAny

from fedpace.core import Named, Registry, by_name


class Rate(Named, ABC):
    """A factor of the learning rate as a function of how much of the run is over, from 0 to 1.

    It depends on the share of rounds, not on their number, so that a shortened run keeps its course.
    """

    @abstractmethod
    def factor(self, progress: float) -> float:
        """What the learning rate is multiplied by."""


rates: Registry[Rate] = Registry("rate", Rate)


@rates.register("constant")
class Constant(Rate):
    """The same rate in every round."""

    def factor(self, progress: float) -> float:
        """Always 1."""
        return 1.0


@rates.register("decay")
class Decay(Rate):
    """Constant up to ``start``, from there falling exponentially towards ``end`` times the rate.

    >>> [round(Decay(start=0.5, end=0.1).factor(p), 3) for p in (0.0, 0.5, 0.75, 1.0)]
    [1.0, 1.0, 0.316, 0.1]
    """

    start: float = Field(0.5, ge=0, lt=1)
    end: float = Field(0.1, gt=0, le=1)

    def factor(self, progress: float) -> float:
        """Exponential in what is over of the decay."""
        over: float = max((progress - self.start) / (1 - self.start), 0.0)
        return float(self.end**over)


@rates.register("cosine")
class Cosine(Rate):
    """Half a cosine from the rate down to ``end`` times it (Loshchilov & Hutter, 2017, without restarts).

    >>> [round(Cosine(end=0.0).factor(p), 3) for p in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """

    end: float = Field(0.01, ge=0, le=1)

    def factor(self, progress: float) -> float:
        """From 1 to ``end``."""
        return self.end + (1 - self.end) * (1 + cos(pi * progress)) / 2


@rates.register("step")
class Step(Rate):
    """Times ``by`` from each of some moments on.

    >>> [round(Step(at=(0.5, 0.75), by=0.1).factor(p), 3) for p in (0.0, 0.5, 0.8)]
    [1.0, 0.1, 0.01]
    """

    at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.5, 0.75)
    by: float = Field(0.1, gt=0, le=1)

    def factor(self, progress: float) -> float:
        """A power of ``by``."""
        return float(self.by ** sum(progress >= moment for moment in self.at))


@rates.register("warm_up")
class WarmUp(Rate):
    """Rises evenly from ``start`` over the first ``share`` of the run, then goes on as another rate ``then`` does.

    >>> [round(WarmUp(share=0.1, start=0.2, then="cosine").factor(p), 3) for p in (0.0, 0.05, 0.1, 1.0)]
    [0.2, 0.6, 1.0, 0.01]
    """

    share: float = Field(0.1, gt=0, lt=1)
    start: float = Field(0.1, gt=0, le=1)
    then: SerializeAsAny[Annotated[Rate, by_name(rates, "constant")]] = Constant()

    def factor(self, progress: float) -> float:
        """Up to 1, then the other's from its beginning."""
        if progress < self.share:
            return self.start + (1 - self.start) * progress / self.share
        return self.then.factor((progress - self.share) / (1 - self.share))
