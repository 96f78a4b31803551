"""How evenly a run serves its clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import ceil, nan
from typing import Any

import numpy as np

from fedpace.analysis.history import Record


@dataclass(frozen=True)
class Fairness:
    """Accuracies over the clients of the last round that measured them, all alike; NaN where none did.

    Attributes:
        mean: Of all clients. A run's accuracy, in contrast, weighs each client by its test examples.
        spread: Their standard deviation.
        worst_decile: Mean of the lowest tenth of the clients, rounded up.

    """

    mean: float
    spread: float
    worst_decile: float


def fairness(records: Sequence[Record]) -> Fairness:
    """How evenly the clients fare at the end.

    >>> fairness([{"round": 0, "client_accuracy": {"0": 0.25, "1": 0.75}}])
    Fairness(mean=0.5, spread=0.25, worst_decile=0.25)
    """
    values = sorted(last_measured(records).get("client_accuracy", {}).values())
    if not values:
        return Fairness(nan, nan, nan)
    worst = values[: ceil(len(values) / 10)]
    return Fairness(float(np.mean(values)), float(np.std(values)), float(np.mean(worst)))


def mean_fairness(histories: Iterable[Sequence[Record]]) -> Fairness:
    """The mean over runs whose clients have tests of their own, and more than one client; NaN without such a run."""
    found = [astuple(fairness(records)) for records in histories if on_own_tests(records)]
    return Fairness(*map(float, np.mean(found, axis=0))) if found else Fairness(nan, nan, nan)


def on_own_tests(records: Sequence[Record]) -> bool:
    """Whether there are clients to compare: several, each measured on tests of its own."""
    last = last_measured(records)
    return last.get("client_accuracy_on") == "test" and len(last["client_accuracy"]) > 1


def late_accuracy(run: Mapping[str, Any], records: Sequence[Record]) -> float:
    """Mean accuracy over the ``cohort.late`` clients of a ``run.json`` at the end; NaN if none of them was measured."""
    late = ((run.get("config") or {}).get("cohort") or {}).get("late", 0)
    if not late or "clients" not in run:
        return nan
    by_client = last_measured(records).get("client_accuracy", {})
    values = [accuracy for client, accuracy in by_client.items() if int(client) >= run["clients"] - late]
    return float(np.mean(values)) if values else nan


def last_measured(records: Sequence[Record]) -> Record:
    """The last round that measured clients; empty if none did."""
    return next((record for record in reversed(records) if record.get("client_accuracy")), {})
