"""Who takes part in a round, from which round's θ each client began, and when the round is over in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from fedpace.core import Tensors
from fedpace.engine.speeds import Durations

_TIME = "time"


@dataclass(frozen=True)
class Step:
    """A round as a calendar sees it: it ends with a step of the server.

    ``arrived`` are the clients whose answers the server waits for, in the order in which it takes them, each with the
    round in which it was sent θ. ``begun`` are those who are sent θ in this round. ``time`` is the virtual time of the
    server's step, where clients have speeds.
    """

    number: int
    arrived: dict[int, int]
    begun: Sequence[int]
    time: float | None = None

    @property
    def cohort(self) -> list[int]:
        """The clients whose answers are waited for."""
        return list(self.arrived)

    @property
    def staleness(self) -> dict[int, int]:
        """How many steps the server took since each of them began."""
        return {client: self.number - began for client, began in self.arrived.items()}

    def groups(self) -> Iterator[tuple[int, list[int]]]:
        """The same clients, together with those that follow them and began in the same round."""
        for began, group in groupby(self.arrived, key=self.arrived.__getitem__):
            yield began, list(group)


class Participation(ABC):
    """Says, round by round, who takes part. It knows nothing of models and training."""

    @abstractmethod
    def step(self, number: int) -> Step:
        """The next round."""

    @property
    @abstractmethod
    def under_way(self) -> set[int]:
        """The rounds in which those clients began that are still at work after the last step."""

    @abstractmethod
    def discount(self, staleness: int) -> float:
        """The factor of the weight of an update whose client began so many steps ago."""

    @abstractmethod
    def state(self) -> Tensors:
        """What the next round depends on."""

    @abstractmethod
    def load_state(self, tensors: Tensors) -> None:
        """Go on from there."""


class Synchronous(Participation):
    """Everybody begins together, and the server waits for the slowest client.

    ``draw`` says who takes part in a round, ``turns`` how often each of them trains in it; without a ``duration`` of
    each client's turn there is no time.
    """

    def __init__(
        self, draw: Callable[[int], list[int]], turns: Callable[[int], int], duration: Durations | None
    ) -> None:
        self._draw, self._turns, self._duration = draw, turns, duration
        self._now = 0.0

    def step(self, number: int) -> Step:
        """The next cohort."""
        cohort = self._draw(number)
        arrived = dict.fromkeys(cohort, number)
        if self._duration is None:
            return Step(number, arrived, cohort)
        slowest = max(map(self._duration, cohort), default=0.0)
        self._now += self._turns(number) * slowest
        return Step(number, arrived, cohort, self._now)

    @property
    def under_way(self) -> set[int]:
        """Nobody is at work between rounds."""
        return set()

    def discount(self, staleness: int) -> float:
        """No update is old."""
        return 1.0

    def state(self) -> Tensors:
        """The time, if there is any."""
        return {} if self._duration is None else {_TIME: torch.tensor([self._now], dtype=torch.float64)}

    def load_state(self, tensors: Tensors) -> None:
        """Go on from that time."""
        if _TIME in tensors:
            self._now = float(tensors[_TIME])
