"""Vectors in blocks of coordinates, each with a scale of its own."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1024
"""Coordinates that share a scale: 4 bytes among so many cost little, and few blocks lie in two layers at once."""


def count(size: int, block: int) -> int:
    """How many blocks a vector has.

    >>> count(2049, 1024)
    3
    """
    return -(-size // block)


def in_blocks(vector: Tensor, block: int) -> list[Tensor]:
    """The same memory as a matrix with a block in each row, and as one with a shorter block if one is left over.

    >>> [tuple(rows.shape) for rows in in_blocks(torch.zeros(2049), 1024)]
    [(2, 1024), (1, 1)]
    """
    whole = len(vector) // block * block
    parts = (vector[:whole], block), (vector[whole:], len(vector) - whole)
    return [part.view(-1, width) for part, width in parts if len(part)]


def scaled(numbers: Tensor, scales: Tensor, block: int) -> Tensor:
    """Each number times the scale of its block."""
    found = torch.empty(len(numbers))
    for rows, into in zip(in_blocks(numbers, block), in_blocks(found, block), strict=True):
        own, scales = scales[: len(rows), None], scales[len(rows) :]
        torch.mul(rows, own, out=into)
    return found
