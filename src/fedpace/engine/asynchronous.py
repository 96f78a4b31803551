"""Clients that do not wait for one another: who is under way, and whose updates fill the server's next buffer.

A simulation in virtual time, without any training: the same settings, speeds and seed give the same course.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import torch
from pydantic import Field, model_validator

from fedpace.core import ConfigError, Settings, Tensors
from fedpace.engine.cohort import Cohort
from fedpace.engine.participation import Participation, Step
from fedpace.engine.speeds import Durations
from fedpace.server import AnyStaleness, PolynomialStaleness


class Asynchronous(Settings):
    """Buffered asynchronous rounds (FedBuff, Nguyen et al., 2022).

    ``concurrency`` clients train at any time, each from θ as it was when it began. Whenever ``buffer`` updates have
    arrived, the server takes a step with them: that is a round. Whoever arrives is replaced by a client that is neither
    under way nor in the buffer. An update's weight is multiplied by its ``staleness`` weight.
    """

    buffer: int = Field(10, ge=1)
    concurrency: int = Field(20, ge=1)
    staleness: AnyStaleness = PolynomialStaleness()

    @model_validator(mode="after")
    def _buffer_can_fill(self) -> Asynchronous:
        if self.buffer > self.concurrency:
            raise ValueError(
                f"buffer = {self.buffer} above concurrency = {self.concurrency} would wait for clients that begin with "
                "its own step"
            )
        return self

    def size(self, clients: int) -> int:
        """Number of updates in a round, of so many clients in all."""
        if self.concurrency > clients:
            raise ConfigError(
                f"asynchronous.concurrency: {self.concurrency} clients are to train at a time, but there are only "
                f"{clients}"
            )
        return self.buffer

    def among(self, clients: int) -> Asynchronous:
        """The same, with no more clients under way than there are."""
        fewer = {"concurrency": min(self.concurrency, clients), "buffer": min(self.buffer, clients)}
        return self.model_copy(update=fewer)

    def check(self, clients: int) -> list[str]:
        """What the user should know of these settings, of so many clients in all."""
        least = clients - self.buffer + 1
        if self.concurrency <= least:
            return []
        return [
            f"asynchronous: of {clients} clients, as few as {least} train where {self.buffer - 1} wait in the buffer, "
            f"not {self.concurrency}: a client that waits for its step does not begin again"
        ]


class UnderWay(NamedTuple):
    """A client at work: when it arrives, who it is, and the round in which it was sent θ."""

    arrives: float
    client: int
    began: int


class Simulation(Participation):
    """Who of so many ``clients`` is under way at which virtual time. ``duration`` is that of a client's turn.

    All that happens at one moment happens in this order: clients arrive, in ascending order; the server takes a step
    whenever its buffer is full; then others begin. So where all turns last equally long and the buffer holds all
    clients under way, rounds are synchronous: those of ``cohort.number``, with the same clients.
    """

    def __init__(self, settings: Asynchronous, clients: int, duration: Durations, seed: int) -> None:
        self._settings, self._clients, self._duration, self._seed = settings, clients, duration, seed
        self._now = 0.0
        self._draws = 0
        self._queue: list[UnderWay] = []  # a heap: the next one to arrive comes first

    def step(self, number: int) -> Step:
        """Let time pass until the buffer is full. Those who began earlier come first in it."""
        arrived: dict[int, UnderWay] = {}
        begun: list[int] = []
        while len(arrived) < self._settings.buffer:
            if not self._queue or self._queue[0].arrives > self._now:
                begun += self._begin(number, arrived)
            first = heappop(self._queue)
            self._now = first.arrives
            arrived[first.client] = first
        ordered = sorted(arrived.values(), key=lambda one: (one.began, one.client))
        return Step(number, {one.client: one.began for one in ordered}, begun, self._now)

    def _begin(self, number: int, waiting: Collection[int]) -> list[int]:
        """Send θ to as many clients as are missing, of those that have nothing to do."""
        busy = sorted(self.clients.union(waiting))
        free = self._clients - len(busy)
        missing = min(self._settings.concurrency - len(self._queue), free)
        if not missing:
            return []
        drawn = Cohort(number=missing).sample(free, seed=self._seed, round_number=self._draws)
        self._draws += 1
        begun = list(_others(busy, drawn))
        for client in begun:
            heappush(self._queue, UnderWay(self._now + self._duration(client), client, number))
        return begun

    @property
    def clients(self) -> set[int]:
        """Who is under way. Whoever takes the places of those who arrived last begins with the next round's θ."""
        return {one.client for one in self._queue}

    @property
    def under_way(self) -> set[int]:
        """The rounds in which these began."""
        return {one.began for one in self._queue}

    def discount(self, staleness: int) -> float:
        """The staleness weight."""
        return self._settings.staleness.weight(staleness)

    def state(self) -> Tensors:
        """The time, the number of draws, and who is under way."""
        queue = sorted(self._queue)
        return {
            "time": torch.tensor([self._now], dtype=torch.float64),
            "draws": torch.tensor([self._draws]),
            "arrives": torch.tensor([one.arrives for one in queue], dtype=torch.float64),
            "clients": torch.tensor([one.client for one in queue], dtype=torch.int64),
            "began": torch.tensor([one.began for one in queue], dtype=torch.int64),
        }

    def load_state(self, tensors: Tensors) -> None:
        """Go on from there."""
        self._now, self._draws = float(tensors["time"]), int(tensors["draws"])
        columns = (tensors[name].tolist() for name in ("arrives", "clients", "began"))
        self._queue = [UnderWay(*row) for row in zip(*columns, strict=True)]
        heapify(self._queue)


def _others(busy: Sequence[int], places: Sequence[int]) -> Iterator[int]:
    """The clients at these places among all that are not busy, however many there are; both are in ascending order.

    >>> list(_others([0, 2, 3], [0, 1, 2]))
    [1, 4, 5]
    """
    below = 0
    for place in places:
        while below < len(busy) and busy[below] <= place + below:
            below += 1
        yield place + below
