"""Rules that sort the clients in each coordinate."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._rule import Rule, Stream
from fedpace.core import devices


class Ordered(Rule):
    """In each coordinate the mean of those values that are ``ranked``, from the smallest to the largest.

    Clients count alike: an attacker may declare as many samples as it likes. Memory: N vectors. Time: O(Nd log²N).
    """

    @abstractmethod
    def ranked(self, clients: int) -> range:
        """Which values are averaged; 0 is the smallest."""

    def taken(self, rows: Rows, weights: list[float]) -> Stream:
        """A stream of these rows."""
        return _OrderedStream(self, rows)

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
        result = self.rows.none.sum(dim=0)
        if self.rows.clients:
            ranks = self._rule.ranked(self.rows.clients)
            for block, piece in self.rows.pieces():
                sort(piece)
                result[block] = piece[ranks.start : ranks.stop].double().mean(dim=0)
        return result


def sort(columns: Tensor) -> None:
    """Sort each column, in place."""
    if devices.on_cpu(columns):
        from fedpace.aggregation._sorting import network, sort_columns

        sort_columns(columns.numpy(), network(len(columns)))
    else:
        columns.copy_(columns.sort(dim=0).values)
