"""Rules that need pairs of clients: one pass builds the Gram matrix, an N-sized problem follows, one pass combines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedpace.aggregation._gram import WHOLE, Rows
from fedpace.aggregation._range import check_range, largest_value
from fedpace.aggregation._rule import Diagnostics, Rule, Stream, check_weights, shares
from fedpace.core import ConfigError


class GramRule(Rule):
    """Result qᵀU, where the coefficients q depend on U only through its Gram matrix.

    Memory: N vectors. Time: N²d for the Gram matrix, Nd for the combination. Products are multiplied in ``precision``,
    or, without one, in that of the updates.
    """

    precision: ClassVar[torch.dtype | None] = None

    @abstractmethod
    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """The coefficients in float64, and what there is to report of them; ``weights`` are normalised."""

    def parts(self, tensors: Sequence[slice]) -> Sequence[slice]:
        """What has coefficients of its own: the whole vector."""
        return WHOLE

    def __call__(self, updates: Tensor, weights: Tensor | None = None, tensors: Sequence[slice] = ()) -> Tensor:
        """Aggregate the rows of ``updates``, where they lie; ``tensors`` are the slices of the model's tensors."""
        checked = check_weights(updates, weights)
        if updates.dtype == torch.float64:
            check_range(largest_value(updates))
        stream = self.taken(Rows.of(updates), checked)
        stream.tensors = tensors
        return stream.finish()

    def taken(self, rows: Rows, weights: list[float]) -> GramStream:
        """A stream of these rows."""
        return GramStream(self, rows, weights)

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> GramStream:
        """Begin a stream."""
        return GramStream(self, Rows(size, clients, dtype), [])


class GramStream(Stream):
    """Keeps the rows."""

    rows: Rows

    def __init__(self, rule: GramRule, rows: Rows, weights: list[float]) -> None:
        super().__init__()
        self.rows = rows
        self._rule = rule
        self._weights = weights

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        """Take one client's update."""
        self.rows.add(update)
        self._weights.append(weight)

    def finish(self) -> Tensor:
        """Gram matrix, coefficients, combination."""
        if not self._weights:
            return self.rows.none.sum(dim=0)  # of no rows: zero
        weights = shares(self._weights)
        parts, size = self._rule.parts(self.tensors), self.rows.none.shape[1]
        covered = sum(len(range(*part.indices(size))) for part in parts)
        if covered != size:
            raise ConfigError(f"tensors: expected slices that cover {size} coordinates, found {covered}")
        found = [self.coefficients(matrix, weights) for matrix in self.rows.grams(parts, self._rule.precision)]
        reports = [{"coefficients": q.tolist(), **report} for q, report in found]
        self.diagnostics = reports[0] if len(reports) == 1 else {"tensors": reports}
        return self.rows.combine([q for q, _ in found], parts)

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """The rule's."""
        return self._rule.coefficients(gram_matrix, weights)
