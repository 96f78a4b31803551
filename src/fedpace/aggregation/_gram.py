"""The Gram kernel: inner products of all pairs of clients, in one pass over their updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedpace.aggregation._arrays import products
from fedpace.aggregation._length import length
from fedpace.aggregation._range import RANGE, narrowed
from fedpace.aggregation._signs import blocks
from fedpace.core import devices

NOISE = 1e-6  # how exactly an inner product is known, relative to the lengths of its two vectors
WHOLE = (slice(None),)


def gram(rows: Tensor, part: slice = slice(None), precision: torch.dtype | None = None) -> Tensor:
    """UUᵀ in float64 on the host, over a part of the columns.

    Short runs of columns are multiplied in the precision of the rows and their products summed in float64: entries of
    float32 rows are known to about 1e-8 · ‖uᵢ‖‖uⱼ‖, and to ``NOISE`` where rounding errors have one sign because
    coordinates are equal. Rows whose squares leave the range of float32 are widened first. Another ``precision`` than
    that of the rows may be asked for.
    """
    found = _products(rows, part, precision or rows.dtype)
    in_range = all(
        1e-30 < square < torch.inf or not row.any()
        for square, row in zip(found.diagonal().tolist(), rows[:, part], strict=True)
    )
    return found if in_range else _products(rows, part, torch.float64)


def _products(rows: Tensor, part: slice, dtype: torch.dtype) -> Tensor:
    if not devices.on_cpu(rows):
        return devices.to_host(products(rows[:, part], dtype))
    from fedpace.aggregation._kernels import add_products

    count, (first, last, _) = len(rows), part.indices(rows.shape[1])
    total = np.zeros((count + 1, count + 1))
    if rows.dtype == dtype:
        add_products(rows.contiguous().numpy(), first, last, total)
    else:  # a copy in another precision, but never of all columns at once
        for block in blocks(last - first, count):
            widened = rows[:, first:last][:, block].to(dtype).contiguous()
            add_products(widened.numpy(), 0, widened.shape[1], total)
    lower = torch.from_numpy(total[:count, :count]).tril()
    return lower + lower.tril(-1).T


def cosines(gram_matrix: Tensor) -> Tensor:
    """Pairwise cosines; a zero vector has cosine 0 with every other and 1 with itself."""
    norms = gram_matrix.diagonal().clamp_min(0).sqrt()
    scale = torch.where(norms > 0, 1 / norms, 0.0)
    found = gram_matrix * scale[:, None] * scale[None, :]
    return found.clamp(-1, 1).fill_diagonal_(1.0)


def pairs(matrix: Tensor) -> Tensor:
    """The entries of a symmetric matrix that belong to two different rows, each pair once."""
    return matrix[torch.triu(torch.ones_like(matrix, dtype=torch.bool), diagonal=1)]


class Rows:
    """Updates that are kept whole, and their Gram matrix, which is built once."""

    def __init__(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> None:
        like = torch.empty(0, dtype=dtype)
        if devices.on_cpu(like):
            # NumPy asks the system for large pages. Touching so much new memory in small ones takes longer than to
            # fill it.
            self._space = torch.from_numpy(np.empty((clients, size), like.numpy().dtype))
        else:
            self._space = torch.empty(clients, size, dtype=dtype)
        self._gram: Tensor | None = None
        self._lent: Tensor | None = None
        self.clients = 0

    @classmethod
    def of(cls, matrix: Tensor) -> Rows:
        """Rows that exist already: no copy, unless they lie in memory as no stream would keep them."""
        found = cls(matrix.shape[1], 0, matrix.dtype)
        aligned = matrix.is_contiguous() and matrix.data_ptr() % 64 == 0  # or else products round differently
        found._space = matrix if aligned else matrix.clone(memory_format=torch.contiguous_format)
        found.clients = len(matrix)
        return found

    @property
    def matrix(self) -> Tensor:
        """U, a row per client."""
        return self._space[: self.clients]

    @property
    def none(self) -> Tensor:
        """A matrix without rows, as long and of the type and on the device of these."""
        return self._space[:0]

    def each(self) -> Iterator[Tensor]:
        """One row after the other; it may be overwritten when the next one is asked for."""
        return iter(self.matrix)

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows, a block of columns at a time, in memory that is the caller's."""
        for block in blocks(self.none.shape[1], self.clients):
            yield block, self.matrix[:, block].clone(memory_format=torch.contiguous_format)

    @property
    def gram(self) -> Tensor:
        """UUᵀ; ask once all rows are there."""
        if self._gram is None:
            self.grams(WHOLE)
        assert self._gram is not None
        return self._gram

    def reuse(self, former: Rows) -> None:
        """Take over the memory of rows that are no longer needed, if it has this size: new memory takes its time."""
        mine, theirs = self._space, former._space
        if (theirs.shape, theirs.dtype, theirs.device) == (mine.shape, mine.dtype, mine.device):
            self._space = theirs

    def lend(self) -> Tensor | None:
        """The memory of the next row, if one is left: an update that is written there and then added is not copied."""
        self._lent = self._space[self.clients] if self.clients < len(self._space) else None
        return self._lent

    def add(self, update: Tensor) -> None:
        """Keep one update."""
        if update is not self._lent:
            self._space[self.clients].copy_(update)
        self._lent = None
        self.clients += 1

    def grams(self, parts: Sequence[slice], precision: torch.dtype | None = None) -> list[Tensor]:
        """The Gram matrix of each part of the columns. Together the parts cover all, so these add up to that of U."""
        found = [gram(self.matrix, part, precision) for part in parts]
        self._gram = torch.stack(found).sum(dim=0)
        return found

    def combine(self, coefficients: Sequence[Tensor], parts: Sequence[slice]) -> Tensor:
        """qᵀU, with coefficients of their own for each part of the columns."""
        result = self._space.new_empty(self._space.shape[1])
        lengths = self._lengths()
        for part, q in zip(parts, coefficients, strict=True):
            if max(float(q.abs() @ lengths), float(q.abs().max())) < RANGE:
                torch.mv(self.matrix[:, part].T, q.to(result), out=result[part])
            else:
                _combine_widely(self.matrix[:, part], q, result[part])
        return result

    def _lengths(self) -> Tensor:
        """‖uᵢ‖, from the Gram matrix if there is one: it costs more than lengths do."""
        if self._gram is None:
            return torch.tensor([length(row) for row in self.matrix], dtype=torch.float64, device=devices.HOST)
        return self._gram.diagonal().clamp_min(0).sqrt()


def _combine_widely(rows: Tensor, coefficients: Tensor, result: Tensor) -> None:
    """The same for coefficients or sums that leave the range of float32."""
    for block in blocks(rows.shape[1], len(rows)):
        found = coefficients.to(rows.device) @ rows[:, block].double()
        result[block] = narrowed(found, result.dtype)
