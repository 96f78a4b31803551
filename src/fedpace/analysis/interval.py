"""Paired confidence intervals: two methods that ran on the same seeds are compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from scipy.special import stdtrit  # scipy.stats takes a second to import

from fedpace.core import ConfigError


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; unknown bounds are NaN."""

    mean: float
    low: float
    high: float

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
    if not 0 < level < 1:
        raise ConfigError(f"level: expected a number between 0 and 1, found {level}")
    count = len(differences)
    mean = float(np.mean(differences)) if count else nan
    if count < 2:
        return Interval(mean, nan, nan)
    half = float(stdtrit(count - 1, (1 + level) / 2) * np.std(differences, ddof=1) / sqrt(count))
    return Interval(mean, mean - half, mean + half)
