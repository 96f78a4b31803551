"""Runs as reports and diagnoses look at them, grouped by method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedpace.analysis.history import Curve
from fedpace.core import ACCURACY, Metric, RoundRecord


@dataclass(frozen=True)
class ReportedRun:
    """One run: the method or variant it belongs to, its seed, config, one record per round, and warnings.

    ``metric`` is what the run is judged by. ``client_names`` are those of all clients; there are none where clients are
    very many, and in runs of older versions. ``folder`` is where it was read.
    """

    label: str
    seed: int
    config: Mapping[str, Any]
    records: Sequence[RoundRecord]
    warnings: Sequence[str] = ()
    metric: Metric = ACCURACY
    client_names: Sequence[str] = ()
    folder: Path | None = None

    @property
    def method(self) -> str:
        """The preset that it ran."""
        return str(self.config.get("method", self.label))

    def name_of(self, client: int) -> str:
        """What a client is called; its number where nobody knows."""
        return self.client_names[client] if client < len(self.client_names) else str(client)


Methods = dict[str, list[ReportedRun]]
"""Label → its runs, in the order in which they came; the first label is the reference."""

Item = TypeVar("Item")


def metric_of(methods: Methods) -> Metric:
    """What all these runs are judged by."""
    return next(iter(methods.values()))[0].metric


def by_method(runs: Iterable[ReportedRun]) -> Methods:
    """Runs grouped by their labels."""
    methods: Methods = {}
    for run in runs:
        methods.setdefault(run.label, []).append(run)
    return methods


def over_seeds(curves: Sequence[Curve]) -> dict[int, list[float]]:
    """Round → one value per seed, for the rounds that every seed measured.

    A mean over changing seeds would jump where no value did; so a round is kept if all seeds measured it. A run
    that measured nothing at all does not count.

    >>> over_seeds([{0: 0.1, 1: 0.2}, {1: 0.4}, {}])
    {1: [0.2, 0.4]}
    """
    measured = [curve for curve in curves if curve]
    common = sorted(set.intersection(*map(set, measured))) if measured else []
    return {number: [curve[number] for curve in measured] for number in common}


def thinned(items: Sequence[Item], limit: int) -> list[Item]:
    """At most ``limit`` items, evenly spaced, the first and the last among them.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= limit:
        return list(items)
    if limit < 2:
        return list(items[-1:])
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]
