"""The bytes of many clients in one go: as if each had been written by itself, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpace.data.examples import Array, Indices, Rows
from fedpace.data.ragged import Ragged, offsets_of


@dataclass(frozen=True)
class Part:
    """A part of what each client writes: the ``content`` of all of them, and how many bytes of it are each one's."""

    content: NDArray[np.uint8]
    lengths: Indices

    @classmethod
    def of(cls, values: Array, counts: Indices) -> Part:
        """So many of the ``values`` of each client."""
        each = values.itemsize * int(np.prod(values.shape[1:], dtype=int))
        return cls(np.ascontiguousarray(values).reshape(-1).view(np.uint8), counts * each)

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Part:
        """A text of each client."""
        encoded = [text.encode() for text in texts]
        return cls(np.frombuffer(b"".join(encoded), np.uint8), np.array([len(text) for text in encoded]))


def parts_of(rows: Rows, counts: Indices) -> list[Part]:
    """What ``rows.tobytes()`` of each client's rows would be, where so many of the ``rows`` are each one's."""
    if not isinstance(rows, Ragged):
        return [Part.of(rows, counts)]
    own = offsets_of(counts)
    starts = rows.offsets[own]  # of each client's values
    offsets = np.insert(rows.offsets[1:] - np.repeat(starts[:-1], counts), own[:-1], 0)
    return [Part.of(offsets, counts + 1), Part.of(rows.flat, np.diff(starts))]


def interleaved(parts: Sequence[Part]) -> bytes:
    """All parts of the first client, then all of the second one, and so on; of at most 65,536 clients."""
    # A stable sort by client keeps the parts in order; a few bytes move as one word.
    size = int(np.gcd.reduce(np.concatenate([[8], *(part.lengths for part in parts)])))
    words = np.concatenate([part.content.view(f"u{size}") for part in parts])
    clients = np.arange(len(parts[0].lengths), dtype=np.uint16)  # which numpy sorts in linear time
    owners = np.concatenate([np.repeat(clients, part.lengths // size) for part in parts])
    return words[np.argsort(owners, kind="stable")].tobytes()
