"""Vectors in blocks of coordinates, each with a scale of its own."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

BLOCK = 1024
"""Coordinates that share a scale: 4 bytes among so many cost little, and few blocks lie in two layers at once."""


def count(size: int, block: int) -> int:
    """How many blocks a vector has.

    >>> count(2049, 1024)
    3
    """
    return -(-size // block)


def in_blocks(vector: Tensor, block: int) -> Tensor:
    """A row per block, in memory of its own; the last one is filled up with zeros."""
    width = max(min(block, len(vector)), 1)  # of a short vector there is one block, and nothing to fill up
    return pad(vector, (0, -len(vector) % width)).view(-1, width)


def joined(rows: Tensor, size: int) -> Tensor:
    """The vector of which these are the blocks."""
    return rows.flatten()[:size]
