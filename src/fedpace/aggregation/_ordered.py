"""Rules that sort the clients in each coordinate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._rule import Rule, Stream
from fedpace.aggregation._signs import blocks
from fedpace.core import devices


class Ordered(Rule):
    """In each coordinate the mean of those values that are ``ranked``, from the smallest to the largest.

    Clients count alike: an attacker may declare as many samples as it likes. Memory: N vectors. Time: O(Nd log²N).
    """

    @abstractmethod
    def ranked(self, clients: int) -> range:
        """Which values are averaged; 0 is the smallest."""

    def taken(self, updates: Tensor, weights: Sequence[float]) -> Stream:
        """A stream of rows that need not be copied."""
        return _OrderedStream(self, Rows.of(updates))

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _OrderedStream(self, Rows(size, clients, dtype))


class _OrderedStream(Stream):
    rows: Rows

    def __init__(self, rule: Ordered, rows: Rows) -> None:
        super().__init__()
        self._rule = rule
        self.rows = rows

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self.rows.add(update)

    def finish(self) -> Tensor:
        rows = self.rows.matrix
        if not len(rows):
            return rows.sum(dim=0)  # of no rows: zero
        ranks = self._rule.ranked(len(rows))
        result = rows.new_empty(rows.shape[1])
        if devices.on_cpu(rows):
            from fedpace.aggregation._sorting import mean_of_ranks, network

            mean_of_ranks(rows.numpy(), network(len(rows)), ranks.start, ranks.stop, result.numpy())
            return result
        for block in blocks(len(result), len(rows)):
            ordered = rows[:, block].sort(dim=0).values
            result[block] = ordered[ranks.start : ranks.stop].double().mean(dim=0)
        return result
