"""Sorting clients in each coordinate, as a network of comparisons: no branches, many coordinates at a time.

Imported late: numba takes its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedpace.aggregation._signs import RUN


def network(clients: int) -> NDArray[np.int64]:
    """Pairs of positions to compare, in this order, that sort so many values (Batcher; Knuth 5.2.2, algorithm M)."""
    found = []
    highest = 1 << max(clients - 1, 0).bit_length() >> 1
    p = highest
    while p > 0:
        q, r, d = highest, 0, p
        while True:
            found += [(i, i + d) for i in range(clients - d) if i & p == r]
            if q == p:
                break
            q, r, d = q >> 1, p, q - p
        p >>= 1
    return np.array(found, np.int64).reshape(-1, 2)


@njit(cache=True, nogil=True)
def sort_columns(rows: NDArray[Any], pairs: NDArray[np.int64]) -> None:
    """Sort each column in place, by the comparisons of a network."""
    for start in range(0, rows.shape[1], RUN):
        run = slice(start, min(start + RUN, rows.shape[1]))
        for pair in range(len(pairs)):
            low, high = rows[pairs[pair, 0], run], rows[pairs[pair, 1], run]
            for k in range(len(low)):
                a, b = low[k], high[k]
                low[k] = a if a < b else b
                high[k] = b if a < b else a
