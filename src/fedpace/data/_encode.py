"""Names as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpace.core import DataError
from fedpace.core.errors import did_you_mean
from fedpace.data._limits import MOST_CLASSES
from fedpace.data.examples import Array, Indices


def encode(what: str, columns: Sequence[Array], known: tuple[str, ...] = ()) -> tuple[list[Indices], tuple[str, ...]]:
    """Columns of labels (one per split) as indices, and the names that they index: ``known``, or those found.

    Integers stand for themselves and are named "0" to the largest; strings are numbered in alphabetical order.

    >>> encode("labels", [np.array(["dog", "cat"]), np.array(["dog"])])
    ([array([1, 0]), array([1])], ('cat', 'dog'))
    """
    everything = np.concatenate(columns)
    if np.issubdtype(everything.dtype, np.integer):
        largest = int(everything.max(initial=-1))
        if largest >= MOST_CLASSES:
            raise DataError(
                f"{what}: expected classes from 0 to at most {MOST_CLASSES - 1}, found {largest}; number them without "
                "gaps, or store them as strings"
            )
        names = known or tuple(map(str, range(largest + 1)))
        return [column.astype(np.int64) for column in columns], names
    values = set(everything.tolist())
    if not all(isinstance(value, str) for value in values):
        found = next(value for value in values if not isinstance(value, str))
        raise DataError(f"{what}: expected integers from 0 or strings, found {found!r}")
    names = known or tuple(sorted(values))
    for value in sorted(values.difference(names)):
        raise DataError(f"{what}: unknown name '{value}'; {did_you_mean(value, names)}")
    index = {name: number for number, name in enumerate(names)}
    return [np.array([index[value] for value in column], dtype=np.int64) for column in columns], names
