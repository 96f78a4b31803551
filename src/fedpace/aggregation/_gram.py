"""Rules that need pairs of clients: one pass builds the Gram matrix, an N-sized problem follows, one pass combines."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, Stream
from fedpace.aggregation._signs import blocks


def gram(rows: Tensor) -> Tensor:
    """UUᵀ in float64, accumulated over column blocks so that no copy of U in float64 exists."""
    total = torch.zeros(rows.shape[0], rows.shape[0], dtype=torch.float64)
    for part in blocks(rows.shape[1], 2 * len(rows)):
        wide = rows[:, part].double()
        total += wide @ wide.T
    return total


def cosines(gram_matrix: Tensor) -> Tensor:
    """Pairwise cosines; a zero vector has cosine 0 with every other and 1 with itself."""
    norms = gram_matrix.diagonal().clamp_min(0).sqrt()
    scale = torch.where(norms > 0, 1 / norms, 0.0)
    found = gram_matrix * scale[:, None] * scale[None, :]
    return found.clamp(-1, 1).fill_diagonal_(1.0)


def pairs(matrix: Tensor) -> Tensor:
    """The entries of a symmetric matrix that belong to two different rows, each pair once."""
    return matrix[torch.triu(torch.ones_like(matrix, dtype=torch.bool), diagonal=1)]


class GramRule(Rule):
    """Result qᵀU, where the coefficients q depend on U only through its Gram matrix. Memory: N vectors."""

    @abstractmethod
    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> Tensor:
        """q, in float64; ``weights`` are normalised."""

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _GramStream(self, size, clients, dtype)


class _GramStream(Stream):
    def __init__(self, rule: GramRule, size: int, clients: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._rule = rule
        self._rows = torch.empty(clients, size, dtype=dtype)
        self._weights: list[float] = []

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._rows[len(self._weights)] = update
        self._weights.append(weight)

    def finish(self) -> Tensor:
        clients = len(self._weights)
        rows = self._rows[:clients]
        if not clients:
            return self._rows.new_zeros(self._rows.shape[1])
        weights = torch.tensor(self._weights, dtype=torch.float64)
        weights = weights / weights.sum() if weights.sum() > 0 else torch.full_like(weights, 1 / clients)
        coefficients = self._rule.coefficients(gram(rows), weights)
        self.diagnostics = {"coefficients": coefficients.tolist()}
        return coefficients.to(rows.dtype) @ rows
