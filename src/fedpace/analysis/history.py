"""Reading a run's history: its records, one per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan, nan
from statistics import fmean

from fedpace.core import RoundRecord

Curve = dict[int, float]
"""Round → value, only for the rounds that measured it."""


def metric_curve(records: Sequence[RoundRecord]) -> Curve:
    """The headline metric by round: accuracy, or what the task is judged by.

    >>> metric_curve([RoundRecord(round=0, metrics={"accuracy": 0.5}), RoundRecord(round=1)])
    {0: 0.5}
    """
    return _measured({record.round: record.headline for record in records})


def client_metric_curve(records: Sequence[RoundRecord]) -> Curve:
    """Mean over a round's participants of the global model's headline metric on each one's own examples.

    Those are its training examples, unless the clients have test splits: a record's ``clients_on`` says which.

    >>> client_metric_curve([RoundRecord(round=0, client_metrics={3: {"accuracy": 0.5}, 7: {"accuracy": 1.0}})])
    {0: 0.75}
    """
    by_round = {record.round: record.client_headlines.values() for record in records}
    return {number: fmean(values) for number, values in by_round.items() if values}


def similarity_curve(records: Sequence[RoundRecord]) -> Curve:
    """Mean pairwise cosine of what the clients sent, by round; a cohort of one has no pairs."""
    return _measured({r.round: None if r.similarity is None else r.similarity.mean for r in records})


def time_curve(records: Sequence[RoundRecord]) -> dict[float, float]:
    """The headline metric by virtual time, where clients have speeds.

    >>> time_curve([RoundRecord(round=0, time=1.5, metrics={"accuracy": 0.5}), RoundRecord(round=1, time=2.0)])
    {1.5: 0.5}
    """
    values = metric_curve(records)
    return {r.time: values[r.round] for r in records if r.time is not None and r.round in values}


def value_at(curve: dict[float, float], time: float) -> float:
    """What was measured last up to a moment; NaN before anything was.

    >>> value_at({1.5: 0.5, 2.0: 0.6}, 1.9), value_at({1.5: 0.5, 2.0: 0.6}, 1.0)
    (0.5, nan)
    """
    return next((value for moment, value in reversed(curve.items()) if moment <= time), nan)


def _measured(values: dict[int, float | None]) -> Curve:
    return {number: value for number, value in values.items() if value is not None and not isnan(value)}


@dataclass(frozen=True)
class StageWindow:
    """Consecutive rounds, both ends inclusive, that ran the same stage."""

    stage: str
    first: int
    last: int


def stage_windows(records: Sequence[RoundRecord]) -> list[StageWindow]:
    """The stages in the order in which they ran; a stage that comes back has a window each time."""
    windows = []
    for stage, group in groupby(records, key=lambda record: record.stage):
        rounds = [record.round for record in group]
        windows.append(StageWindow(stage, rounds[0], rounds[-1]))
    return windows
