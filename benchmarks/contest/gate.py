"""Where a contestant waits before each round, so that the rounds of all can take turns."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

Gate = Callable[[], None]
"""Called before each round; raises ``Finished`` where there is none."""


class Finished(Exception):  # noqa: N818  # no error
    """No further round is wanted."""


class Answer(NamedTuple):
    """Seconds of the round that is over, 0 before the first one, and the process's memory at its peak in MB."""

    seconds: float
    memory: float


class PipeGate:
    """Tells the time of each round through a pipe, and waits there until the next one is asked for."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._begun: float | None = None
        self.finished = False

    def __call__(self) -> None:
        """The round before, if there was one, is over."""
        now = perf_counter()
        self._pipe.send(Answer(0.0 if self._begun is None else now - self._begun, peak_memory()))
        self.finished = not self._pipe.recv()
        if self.finished:
            raise Finished
        self._begun = perf_counter()


def peak_memory() -> float:
    """The most that this process ever held, in MB."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
