"""Who holds which examples, of any number of clients in two arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from fedpace.core import PartitionError
from fedpace.data.examples import Indices
from fedpace.data.ragged import offsets_of, spans

BLOCK = 2**16
"""Examples of clients that are looked at together: few enough to be held beside the data, enough for quick arrays."""


@dataclass(frozen=True, eq=False)
class Hands(Sequence[Indices]):
    """The examples of each client: client i holds ``indices[offsets[i]:offsets[i + 1]]``.

    Without ``indices`` these are the examples from ``offsets[i]`` to ``offsets[i + 1]`` themselves, so clients whose
    examples lie side by side need nothing but their offsets. Both may be memory-mapped.

    >>> Hands(np.array([0, 2, 5]))[1]
    array([2, 3, 4])
    >>> Hands(np.array([0, 2, 5]), np.array([7, 3, 0, 9, 4]))[0]
    array([7, 3])
    """

    offsets: Indices
    indices: Indices | None = None

    def __post_init__(self) -> None:
        _check_row("offsets", self.offsets, "int64")
        if self.indices is not None:
            _check_row("indices", self.indices, "integers")
        if not len(self.offsets) or (self.offsets[1:] < self.offsets[:-1]).any():
            raise PartitionError(
                "hands: expected offsets that rise, from the first client's start to the last one's end"
            )
        first, last = self.offsets[[0, -1]].tolist()
        if self.indices is not None and not 0 <= first <= last <= len(self.indices):
            raise PartitionError(
                f"hands: expected offsets from 0 to {len(self.indices)}, the number of indices, found {first} to {last}"
            )

    @classmethod
    def of(cls, hands: Sequence[Indices]) -> Hands:
        """The same hands in two arrays."""
        if isinstance(hands, Hands):
            return hands
        held = [hand for hand in hands if len(hand)]  # an empty array is one of floats unless it says otherwise
        return cls.dealt(np.concatenate([np.empty(0, np.int64), *held]), [len(hand) for hand in hands])

    @classmethod
    def dealt(cls, indices: Indices, sizes: Sequence[int] | Indices) -> Hands:
        """The indices in their order, so many to each client."""
        return cls(offsets_of(sizes), indices)

    @classmethod
    def grouped(cls, values: Indices, count: int) -> Hands:
        """For each number below ``count`` the positions at which it is among the ``values``.

        >>> list(Hands.grouped(np.array([1, 0, 1]), 2))
        [array([1]), array([0, 2])]
        """
        offsets = offsets_of(np.bincount(values, minlength=count))
        in_order = (values[:-1] <= values[1:]).all()
        return cls(offsets, None if in_order else np.argsort(values, kind="stable"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Indices: ...
    @overload
    def __getitem__(self, index: slice) -> Hands: ...
    def __getitem__(self, index: int | slice) -> Indices | Hands:
        clients = range(len(self))[index]
        if isinstance(clients, int):
            return self.hand(clients)
        if clients.step == 1:
            return Hands(self.offsets[clients.start : clients.start + len(clients) + 1], self.indices)
        return self.chosen(np.array(clients, dtype=np.int64))

    def hand(self, client: int) -> Indices:
        """What a client holds, by its number from 0."""
        return self._between(self.offsets[client], self.offsets[client + 1])

    def _between(self, start: int, stop: int) -> Indices:
        if self.indices is None:
            return np.arange(start, stop, dtype=np.int64)
        return np.asarray(self.indices[start:stop], dtype=np.int64)

    @property
    def sizes(self) -> Indices:
        """How many examples each client holds."""
        return np.diff(self.offsets)

    def joined(self) -> Indices:
        """All examples, one client's after another's."""
        return self._between(self.offsets[0], self.offsets[-1])

    def blocks(self) -> Iterator[Hands]:
        """The same clients, a few at a time: as many as hold ``BLOCK`` examples, or one that holds more."""
        start = 0
        while start < len(self):
            within = np.searchsorted(self.offsets, self.offsets[start] + BLOCK, side="right") - 1
            stop = max(min(int(within), start + BLOCK), start + 1)
            yield self[start:stop]
            start = stop

    def owners(self) -> Indices:
        """Whose each of the :meth:`joined` examples is."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def chosen(self, clients: Indices) -> Hands:
        """The hands of some clients, in this order.

        >>> Hands(np.array([0, 2, 5])).chosen(np.array([1])).joined()
        array([2, 3, 4])
        """
        places, offsets = spans(self.offsets[:-1][clients], self.sizes[clients])
        return Hands(offsets, places if self.indices is None else np.asarray(self.indices[places], dtype=np.int64))

    def merged(self, each: int) -> Hands:
        """Clients that hold what ``each`` so many of these, one after another, hold together."""
        return Hands(self.offsets[::each], self.indices)

    def check(self, examples: int) -> None:
        """Indices must be those of so many ``examples``, and none may be used twice."""
        low, high = self._range()
        if low < 0 or high >= examples:
            raise PartitionError(f"indices out of range: expected 0 to {examples - 1}, found {low} to {high}")
        if self.indices is None:
            return  # offsets rise
        seen = np.zeros(examples, bool)
        for block in self.blocks():
            seen[block.joined()] = True
        if np.count_nonzero(seen) < self.offsets[-1] - self.offsets[0]:
            times = sum(np.bincount(block.joined(), minlength=examples) for block in self.blocks())
            raise PartitionError(
                f"example {np.argmax(times)} is used {np.max(times)} times; each belongs to one client"
            )

    def _range(self) -> tuple[int, int]:
        """The smallest and the largest index."""
        if self.indices is None:
            return int(self.offsets[0]), int(self.offsets[-1]) - 1
        joined = (block.joined() for block in self.blocks())
        lows, highs = zip(*((int(own.min()), int(own.max())) for own in joined if len(own)), strict=True)
        return min(lows), max(highs)


def _check_row(what: str, array: Indices, kind: Literal["int64", "integers"]) -> None:
    fits = array.dtype == np.int64 or (kind == "integers" and array.dtype.kind in "iu")
    if array.ndim != 1 or not fits:
        raise PartitionError(f"hands: expected {what} in one row of {kind}, found {array.dtype} of shape {array.shape}")


def even_sizes(total: int, parts: int) -> Indices:
    """The sizes of so many parts, equal up to 1, the larger ones first.

    >>> even_sizes(8, 3)
    array([3, 3, 2])
    """
    return total // parts + (np.arange(parts) < total % parts)
