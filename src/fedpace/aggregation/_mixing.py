"""What happens to updates before a rule sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedpace.aggregation._gram import WHOLE, Rows
from fedpace.aggregation._rule import AnyRule, Rule, Stream, shares
from fedpace.aggregation.mean import Mean


class MixedRows(Rows):
    """MU: rows that are combinations of others, computed where and when they are needed."""

    def __init__(self, rows: Rows, mixes: Tensor) -> None:
        super().__init__(0, 0)
        self.clients = len(mixes)
        self._rows, self._mixes = rows, mixes

    @property
    def none(self) -> Tensor:
        """As the rows that are combined."""
        return self._rows.none

    @property
    def matrix(self) -> Tensor:
        """MU, whole."""
        return torch.cat([self.none.new_empty(self.clients, 0), *(piece for _, piece in self.pieces())], dim=1)

    def each(self) -> Iterator[Tensor]:
        """One row after the other, in the same memory."""
        row = self.none.new_empty(self.none.shape[1])
        for mix in self._mixes.tolist():
            row.zero_()
            for other, share in zip(self._rows.each(), mix, strict=True):
                if share:
                    row.add_(other, alpha=share)
            yield row

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """A product for each block of columns."""
        mixes = self._mixes.to(self.none)
        for block, piece in self._rows.pieces():
            yield block, mixes @ piece

    def grams(self, parts: Sequence[slice], precision: torch.dtype | None = None) -> list[Tensor]:
        """MUUᵀMᵀ."""
        found = [self._mixes @ each @ self._mixes.T for each in self._rows.grams(parts, precision)]
        for matrix in found:  # updates that cancel out leave rounding errors of either sign
            matrix.diagonal().clamp_(min=0)
        self._gram = torch.stack(found).sum(dim=0)
        return found

    def combine(self, coefficients: Sequence[Tensor], parts: Sequence[slice]) -> Tensor:
        """(Mᵀq)ᵀU."""
        return self._rows.combine([self._mixes.T @ q for q in coefficients], parts)


class Mixing(Rule):
    """The ``rule`` of vectors that are made of the clients' updates.

    Memory: N vectors, and what the rule needs.
    """

    rule: AnyRule = Mean()

    @abstractmethod
    def mixes(self, rows: Rows, weights: list[float], seed: int) -> tuple[Tensor, list[float]]:
        """The coefficients of the vectors that the rule is to see, a row for each, and their weights."""

    def seen(self, clients: Sequence[int] | None) -> Sequence[int] | None:
        """Whose the vectors are that the rule sees."""
        return clients

    @property
    def trusted(self) -> int | None:
        """The rule's."""
        return self.rule.trusted

    @property
    def caution(self) -> str | None:
        """The rule's, or that nothing is gained without a robust one."""
        if self.rule.caution or self.robust or self.rule.robust:
            return self.rule.caution
        rule = self.rule.registered_name()
        return f"'{self.registered_name()}' before '{rule}' bears no attackers: expected a robust rule behind it"

    def bears(self, clients: int) -> int:
        """As many as the rule does."""
        return self.rule.bears(clients)

    def check(self, clients: int) -> None:
        """The rule's."""
        self.rule.check(clients)

    def taken(self, rows: Rows, weights: list[float]) -> Stream:
        """A stream of these rows."""
        return _MixingStream(self, rows, weights)

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _MixingStream(self, Rows(size, clients, dtype), [])


class _MixingStream(Stream):
    rows: Rows

    def __init__(self, rule: Mixing, rows: Rows, weights: list[float]) -> None:
        super().__init__()
        self._rule = rule
        self._weights = weights
        self.rows = rows

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self.rows.add(update)
        self._weights.append(weight)

    def finish(self) -> Tensor:
        unmasked, mask = self.split()
        return unmasked if mask is None else unmasked.mul_(mask)

    def split(self) -> tuple[Tensor, Tensor | None]:
        rule, rows, weights = self._rule.rule, self.rows, self._weights
        if weights:
            mixes, weights = self._rule.mixes(rows, weights, self.seed)
            rows = MixedRows(rows, mixes)
            if isinstance(rule, Mean):
                return rows.combine([shares(weights)], WHOLE), None
        inner = rule.taken(rows, weights)
        inner.tensors, inner.seed = self.tensors, self.seed
        inner.clients = self._rule.seen(self.clients)
        found = inner.split()
        self.diagnostics = inner.diagnostics
        return found
