"""Reading a run's history: the list of per-round records in ``rounds.jsonl``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan
from statistics import fmean
from typing import Any

Record = dict[str, Any]
"""What one round wrote. A measurement that was not taken is null."""

Curve = dict[int, float]
"""Round → value, only for the rounds that measured it."""


def accuracy_curve(records: Sequence[Record]) -> Curve:
    """Accuracy by round.

    >>> accuracy_curve([{"round": 0, "accuracy": 0.5}, {"round": 1, "accuracy": None}])
    {0: 0.5}
    """
    return {r["round"]: r["accuracy"] for r in records if _is_measured(r.get("accuracy"))}


def client_accuracy_curve(records: Sequence[Record]) -> Curve:
    """Mean over a round's participants of the global model's accuracy on each one's own examples.

    Those are its training examples, unless the clients have test splits: ``client_accuracy_on`` says which.

    >>> client_accuracy_curve([{"round": 0, "client_accuracy": {"3": 0.5, "7": 1.0}}, {"round": 1}])
    {0: 0.75}
    """
    by_round: dict[int, Any] = {r["round"]: r.get("client_accuracy") for r in records}
    return {number: fmean(by_client.values()) for number, by_client in by_round.items() if by_client}


def similarity_curve(records: Sequence[Record]) -> Curve:
    """Mean pairwise cosine of what the clients sent, by round."""
    means: dict[int, Any] = {r["round"]: (r.get("similarity") or {}).get("mean") for r in records}
    return {number: mean for number, mean in means.items() if _is_measured(mean)}


def _is_measured(value: float | None) -> bool:
    # A cohort of one has no pairs: its similarity is NaN.
    return value is not None and not isnan(value)


@dataclass(frozen=True)
class StageWindow:
    """Consecutive rounds, both ends inclusive, that ran the same stage."""

    stage: str
    first: int
    last: int


def stage_windows(records: Sequence[Record]) -> list[StageWindow]:
    """The stages in the order in which they ran; a stage that comes back has a window each time."""
    windows = []
    for stage, group in groupby(records, key=lambda record: str(record.get("stage", "fedavg"))):
        rounds = [record["round"] for record in group]
        windows.append(StageWindow(stage, rounds[0], rounds[-1]))
    return windows
