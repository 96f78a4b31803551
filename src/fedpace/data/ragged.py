"""Rows of different length, such as texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpace.core import DataError

PAD = 0
"""What makes rows of inputs as long as the longest of their batch; a vocabulary of characters names nothing else so."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different length in one ``flat`` array: row i is ``flat[offsets[i]:offsets[i + 1]]``.

    It can be used like an array of rows: ``len``, ``dtype``, ``shape`` (with the longest row), indices and slices.

    >>> texts = Ragged.of([np.array([5, 6, 7]), np.array([8])])
    >>> texts[np.array([1, 0])].padded(0)
    array([[8, 0, 0],
           [5, 6, 7]])
    """

    flat: NDArray[Any]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else []
        if self.flat.ndim != 1 or ends != [0, len(self.flat)] or (np.diff(self.offsets) < 0).any():
            raise DataError(
                f"ragged: expected a flat array and offsets that rise from 0 to its length ({len(self.flat)}), found "
                f"an array of shape {self.flat.shape} and offsets from {' to '.join(map(str, ends)) or 'nowhere'}"
            )

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]]) -> Ragged:
        """The given rows, one or more of them; a copy."""
        return cls(np.concatenate(rows), offsets_of([len(row) for row in rows]))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of one part after those of another; a copy."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self.flat[start:stop] for start, stop in pairwise(self.offsets))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The kind of the values."""
        return self.flat.dtype

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each row."""
        return np.diff(self.offsets)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Rows × the longest row: the shape when padded."""
        return len(self), int(self.lengths.max(initial=0))

    @property
    def ndim(self) -> int:
        """Two dimensions: rows, and values of each."""
        return 2

    def __getitem__(self, indices: NDArray[Any] | slice) -> Ragged:
        """The rows that numpy would choose; a copy."""
        places, offsets = spans(self.offsets[:-1][indices], self.lengths[indices])
        return Ragged(self.flat[places], offsets)

    def padded(self, value: float) -> NDArray[Any]:
        """An array in which ``value`` fills up each row to the longest one; a view if all are equally long."""
        if self.flat.size == np.prod(self.shape):
            return self.flat.reshape(self.shape)
        filled = np.full(self.shape, value, self.dtype)
        filled[np.arange(self.shape[1]) < self.lengths[:, None]] = self.flat
        return filled

    def tobytes(self) -> bytes:
        """All rows as bytes, from which they could be read again."""
        return self.offsets.tobytes() + self.flat.tobytes()


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some rows of these ``lengths`` begins, one after another, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All places from each of the ``starts`` on, so many of each, and the offsets of what lies there.

    >>> spans(np.array([7, 0]), np.array([2, 3]))
    (array([7, 8, 0, 1, 2]), array([0, 2, 5]))
    """
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths), offsets
