"""What is made of many things only when it is asked for, and the few that stand for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np

from fedpace.data.examples import Indices

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[T_co]):
    """Items that follow from their ``numbers``: a million of them take no memory.

    >>> names = Lazy(str, range(1_000_000))
    >>> names[-1], names[2:4], names[:2] == ("0", "1")
    ('999999', ('2', '3'), True)
    """

    make: Callable[[int], T_co]
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Lazy[T_co]:
        if isinstance(index, slice):
            return Lazy(self.make, self.numbers[index])
        return self.make(self.numbers[index])

    def __iter__(self) -> Iterator[T_co]:
        return map(self.make, self.numbers)

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence, such as a tuple, of the same items."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)


def numbered(count: int) -> Lazy[str]:
    """The names of things that have none: "0", "1" and so on."""
    return Lazy(str, range(count))


def evenly(count: int, most: int) -> Indices:
    """Indices below ``count``, evenly spaced, at most so many.

    >>> evenly(10, 4)
    array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))
