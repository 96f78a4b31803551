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


@njit(cache=True, nogil=True, fastmath={"contract"})  # one rounding per step, as torch does it
def add_and_count(values: NDArray[Any], share: Any, totals: NDArray[Any], sums: NDArray[Any]) -> None:
    """Add ``share`` of each value to its total, and its sign to its sum."""
    for i in range(len(values)):
        totals[i] += share * values[i]
        sums[i] += (values[i] > 0) - (values[i] < 0)


@njit(cache=True, nogil=True)
def soft_mask(
    values: NDArray[Any],
    signs: NDArray[Any],
    votes: NDArray[Any],
    clients: np.float32,
    enough: Any,
    slope: np.float32,
    mask: NDArray[np.float32] | None,
) -> tuple[int, int, float]:
    """Fill ``mask`` with 1 where |vote| is ``enough``, else with ``slope`` · |vote| / ``clients``.

    Without a mask, values are multiplied by it at once. Returned are how many votes are not enough, how many values
    have the other sign than their sum of ``signs``, and the sum of the votes that are not enough.
    """
    below, opposed, lost = 0, 0, 0
    for i in range(len(values)):
        count = abs(votes[i])
        below += count < enough
        lost += count if count < enough else 0
        opposed += np.float32(signs[i]) * values[i] < 0
        factor = slope * (np.float32(count) / clients) if count < enough else np.float32(1)
        if mask is None:  # decided when it is compiled
            values[i] *= factor
        else:
            mask[i] = factor
    return below, opposed, lost
