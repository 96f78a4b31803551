"""Paired confidence intervals: two methods that ran on the same seeds are compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from fedpace.core import ConfigError


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; unknown bounds are NaN."""

    mean: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far apart the bounds are; infinite or NaN where they are unknown."""
        return self.high - self.low

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of 0. Unknown bounds exclude nothing."""
        return self.low > 0 or self.high < 0


def paired_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval for the mean of paired differences.

    One difference has a mean but no known interval; none has neither.

    >>> paired_interval([0.01, 0.01, 0.01])
    Interval(mean=0.01, low=0.01, high=0.01)
    >>> paired_interval([0.01])
    Interval(mean=0.01, low=nan, high=nan)
    """
    from scipy.special import stdtrit  # here, because SciPy is slow to import; scipy.stats takes a second

    _check_level(level)
    if len(differences) < 2:
        return Interval(float(np.mean(differences)) if len(differences) else nan, nan, nan)
    return _around_mean(differences, float(stdtrit(len(differences) - 1, (1 + level) / 2)))


def anytime_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """A confidence sequence: valid at every number of pairs at once, so that one may look after each and stop.

    It holds all means that a Bayes factor does not reject: H₁ gives the standardised mean a normal prior of variance
    1 (Rouder et al., 2009, for a fixed g), and under H₀ the factor is a martingale (Lai, 1976; Wang & Ramdas, 2025), so
    it ever exceeds 1/α with probability α at most (Ville). Wider than Student's interval: by 1.7 at ten pairs. The
    first few pairs bound nothing.

    >>> anytime_interval([0.01, 0.02, 0.01])
    Interval(mean=0.0133..., low=-inf, high=inf)
    >>> anytime_interval([0.01, 0.02] * 5).excludes_zero
    True
    """
    _check_level(level)
    count = len(differences)
    if count < 2:
        return paired_interval(differences, level)
    # The factor is (1 + n)^(-1/2) · [(1 + t²/ν) / (1 + t²/((1 + n)ν))]^(n/2); solved for the t at which it is 1/α.
    bound = (sqrt(1 + count) / (1 - level)) ** (2 / count)
    if bound >= 1 + count:  # no t is large enough
        return Interval(float(np.mean(differences)), -inf, inf)
    return _around_mean(differences, sqrt((count - 1) * (bound - 1) / (1 - bound / (1 + count))))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level: expected a number between 0 and 1, found {level}")


def _around_mean(differences: Sequence[float], errors: float) -> Interval:
    """So many standard errors to both sides of the mean."""
    mean = float(np.mean(differences))
    half = errors * float(np.std(differences, ddof=1)) / sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def corrected_level(level: float, effects: int) -> float:
    """The level of each of several intervals such that all of them hold together with ``level`` (Bonferroni).

    >>> corrected_level(0.95, 5)
    0.99
    """
    return round(1 - (1 - level) / max(effects, 1), 12)
