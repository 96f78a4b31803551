"""Loops over coordinates that no chain of array operations does in one pass. Imported late: numba takes its time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedpace.aggregation._signs import RUN


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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # sums in the order that the processor likes best
def add_products(rows: NDArray[Any], first: int, last: int, total: NDArray[np.float64]) -> None:
    """Add the inner products of all pairs of rows, over the columns from ``first`` to ``last``, to half of ``total``.

    Runs of columns are summed in the precision of the rows, and the sums of runs in float64. Two rows meet two others
    at a time, so that every value that is loaded serves twice. An odd number of rows ends with a pair of the same row:
    ``total`` is one larger than needed, its last row and column mean nothing, and above its diagonal it is not whole.
    """
    count = rows.shape[0]
    for start in range(first, last, RUN):
        run = slice(start, min(start + RUN, last))
        for i in range(0, count, 2):
            a, b = rows[i, run], rows[min(i + 1, count - 1), run]
            for j in range(0, i + 1, 2):
                c, d = rows[j, run], rows[min(j + 1, count - 1), run]
                ac = ad = bc = bd = rows.dtype.type(0)
                for k in range(len(a)):
                    ac += a[k] * c[k]
                    ad += a[k] * d[k]
                    bc += b[k] * c[k]
                    bd += b[k] * d[k]
                total[i, j] += ac
                total[i, j + 1] += ad
                total[i + 1, j] += bc
                total[i + 1, j + 1] += bd


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def sum_of_squares(values: NDArray[Any]) -> float:
    """Add the squares of all values in float64."""
    total = 0.0
    for i in range(len(values)):
        value = np.float64(values[i])
        total += value * value
    return total
