"""Clients that do not wait for one another: who is under way, and whose updates fill the server's next buffer.

A simulation in virtual time, without any training: the same settings, speeds and seed give the same course.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import torch
from pydantic import Field, model_validator

from fedpace.core import ConfigError, Settings, Tensors
from fedpace.engine.cohort import Cohort
from fedpace.engine.participation import Participation, Step
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
            raise ValueError("a buffer larger than concurrency waits for clients that begin with its own step")
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
    """Who is under way at which virtual time. ``durations`` are those of the clients' turns.

    All that happens at one moment happens in this order: clients arrive, in ascending order; the server takes a step
    whenever its buffer is full; then others begin. So where all turns last equally long and the buffer holds all
    clients under way, rounds are synchronous: those of ``cohort.number``, with the same clients.
    """

    def __init__(self, settings: Asynchronous, durations: Sequence[float], seed: int) -> None:
        self._settings, self._durations, self._seed = settings, durations, seed
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
        missing = self._settings.concurrency - len(self._queue)
        busy = {one.client for one in self._queue}.union(waiting)
        free = [client for client in range(len(self._durations)) if client not in busy]
        if not missing or not free:
            return []
        cohort = Cohort(number=min(missing, len(free)))
        drawn = [free[at] for at in cohort.sample(len(free), seed=self._seed, round_number=self._draws)]
        self._draws += 1
        for client in drawn:
            heappush(self._queue, UnderWay(self._now + self._durations[client], client, number))
        return drawn

    @property
    def clients(self) -> set[int]:
        """Who is under way after the last step. Whoever takes their places begins with the next round's θ."""
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
