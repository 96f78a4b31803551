"""Loops over coordinates that no chain of array operations does in one pass. Imported late: numba takes its time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def count_signs(values: NDArray[Any], sums: NDArray[Any]) -> None:
    """Add the sign of each value to its sum."""
    for i in range(len(values)):
        sums[i] += (values[i] > 0) - (values[i] < 0)


@njit(cache=True, nogil=True)
def soft_mask(
    votes: NDArray[Any], clients: np.float32, enough: float, slope: np.float32, mask: NDArray[np.float32]
) -> np.int32:
    """Fill ``mask`` with 1 where |vote| is ``enough``, else with ``slope`` · |vote| / ``clients``; count the latter."""
    below = np.int32(0)
    for i in range(len(votes)):
        count = abs(votes[i])
        fails = count < enough
        below += np.int32(fails)
        mask[i] = slope * (np.float32(count) / clients) if fails else np.float32(1)
    return below


@njit(cache=True, nogil=True)
def opposed(values: NDArray[Any], signs: NDArray[Any]) -> np.int32:
    """How many values have the other sign than their sum of signs."""
    found = np.int32(0)
    for i in range(len(values)):
        found += np.int32(signs[i] * values[i] < 0)
    return found
