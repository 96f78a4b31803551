"""Seconds that are spent waiting for clients."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from fedpace.core import Update


class Stopwatch:
    """Adds up the seconds that are spent waiting, and how many answers came of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.answers = 0

    @property
    def mean(self) -> float:
        """Seconds for each answer."""
        return self.seconds / max(self.answers, 1)

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._start

    def over(self, updates: Iterator[Update]) -> Iterator[Update]:
        """The same updates; waiting for each is counted."""
        while True:
            with self:
                update = next(updates, None)
            if update is None:
                return
            self.answers += 1
            yield update
