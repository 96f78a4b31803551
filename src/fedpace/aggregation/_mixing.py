"""What happens to updates before a rule sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._rule import AnyRule, Rule, Stream
from fedpace.aggregation.mean import Mean


class Mixing(Rule):
    """The ``rule`` of vectors that are made of the clients' updates.

    Memory: N vectors, as many as are made of them, and what the rule needs.
    """

    rule: AnyRule = Mean()

    @abstractmethod
    def mixed(self, rows: Rows, weights: Sequence[float], seed: int) -> tuple[Tensor, Sequence[float]]:
        """The rows that the rule is to see, in new memory, and their weights."""

    @property
    def caution(self) -> str | None:
        """The rule's."""
        return self.rule.caution

    def bears(self, clients: int) -> int:
        """As many as the rule does."""
        return self.rule.bears(clients)

    def check(self, clients: int) -> None:
        """The rule's."""
        self.rule.check(clients)

    def taken(self, updates: Tensor, weights: Sequence[float]) -> Stream:
        """A stream of rows that need not be copied."""
        return _MixingStream(self, Rows.of(updates), list(weights))

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
        inner = self._inner()
        result = inner.finish()
        self.diagnostics = inner.diagnostics
        return result

    def split(self) -> tuple[Tensor, Tensor | None]:
        inner = self._inner()
        result = inner.split()
        self.diagnostics = inner.diagnostics
        return result

    def _inner(self) -> Stream:
        """The stream of the rule, which has taken everything."""
        matrix, weights = self.rows.matrix, self._weights
        inner = self._rule.rule.taken(*(self._rule.mixed(self.rows, weights, self.seed) if weights else (matrix, [])))
        inner.tensors, inner.seed = self.tensors, self.seed
        return inner
