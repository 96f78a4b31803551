"""Memory that worker processes share with the server: its parameters, and a row for each answer under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpace.core import Buffers
from fedpace.engine.worker import Worker

MEMORY = 32 << 20  # bytes for the rows of a small model: they should stay in the machine's cache
PER_WORKER = 32  # more rows than a worker fills in some milliseconds serve nobody
ALIGNED = 16  # floats: the kernels that read rows begin where a cache line does


@dataclass(frozen=True)
class Row:
    """Shared memory for one answer (or for the server's vector): parameters and buffers."""

    vector: Tensor
    buffers: Buffers


class Rows:
    """Some rows, of which vectors, floats and integers lie in one piece of memory each: ``parts``."""

    def __init__(self, parts: Sequence[Tensor], lengths: Sequence[int]) -> None:
        self._parts, self._lengths = parts, lengths
        cut = [part[:, :length] for part, length in zip(parts, lengths, strict=True)]
        self._rows = [Row(vector, Buffers(*buffers)) for vector, *buffers in zip(*cut, strict=True)]

    @classmethod
    def like(cls, worker: Worker, count: int) -> Rows:
        """So many rows for the shared part of a worker's model, and its buffers."""
        model = worker.model
        likes = [model.vector.new_empty(model.layout.shared.size), model.buffers.floats, model.buffers.integers]
        return cls([_shared(count, like) for like in likes], [len(like) for like in likes])

    def __reduce__(self) -> tuple[type[Rows], tuple[Sequence[Tensor], Sequence[int]]]:
        """Pickled as the memory that they lie in: each piece has a file descriptor."""
        return Rows, (self._parts, self._lengths)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        return self._rows[number]


def rows_for(worker: Worker, workers: int) -> int:
    """How many rows so many workers need: two for each and two more, or as many as ``MEMORY`` holds of a small model.

    With two, a worker is at work while its last answer is aggregated. With many it does a small model's turns by the
    dozen. It is no question of how many clients there are.
    """
    model = worker.model
    size = 4 * (model.layout.shared.size + len(model.buffers.floats) + 2 * len(model.buffers.integers))
    return max(2 * workers + 2, min(PER_WORKER * workers, MEMORY // max(size, 1)))


def _shared(count: int, like: Tensor) -> Tensor:
    padded = -(-len(like) // ALIGNED) * ALIGNED
    return torch.zeros(count, padded, dtype=like.dtype).share_memory_()  # type: ignore[no-any-return, no-untyped-call]
