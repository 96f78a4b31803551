"""How evenly a run serves its clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import ceil, nan
from typing import Any

import numpy as np

from fedpace.core import ACCURACY, Metric, RoundRecord


@dataclass(frozen=True)
class Fairness:
    """The headline metric over the clients of the last round that measured them, all alike; NaN where none did.

    Attributes:
        mean: Of all clients. A run's own figure, in contrast, weighs each client by its test examples.
        spread: Their standard deviation.
        worst_decile: Mean of the worst-off tenth of the clients, rounded up.

    """

    mean: float
    spread: float
    worst_decile: float


def fairness(records: Sequence[RoundRecord], metric: Metric = ACCURACY) -> Fairness:
    """How evenly the clients fare at the end.

    >>> fairness([RoundRecord(round=0, client_metrics={0: {"accuracy": 0.25}, 1: {"accuracy": 0.75}})])
    Fairness(mean=0.5, spread=0.25, worst_decile=0.25)
    """
    last = last_measured(records)
    values = [] if last is None else sorted(last.client_headlines.values(), reverse=not metric.rises)
    if not values:
        return Fairness(nan, nan, nan)
    worst = values[: ceil(len(values) / 10)]
    return Fairness(float(np.mean(values)), float(np.std(values)), float(np.mean(worst)))


def mean_fairness(histories: Iterable[Sequence[RoundRecord]], metric: Metric = ACCURACY) -> Fairness:
    """The mean over runs whose clients have tests of their own, and more than one client; NaN without such a run."""
    found = [astuple(fairness(records, metric)) for records in histories if on_own_tests(records)]
    return Fairness(*map(float, np.mean(found, axis=0))) if found else Fairness(nan, nan, nan)


def on_own_tests(records: Sequence[RoundRecord]) -> bool:
    """Whether there are clients to compare: several, each measured on tests of its own."""
    last = last_measured(records)
    return last is not None and last.clients_on == "test" and len(last.client_metrics) > 1


def late_clients(run: Mapping[str, Any], records: Sequence[RoundRecord]) -> float:
    """Mean over the ``cohort.late`` clients of a ``run.json`` at the end; NaN if none of them was measured."""
    late = ((run.get("config") or {}).get("cohort") or {}).get("late", 0)
    last = last_measured(records)
    if not late or "clients" not in run or last is None:
        return nan
    values = [value for client, value in last.client_headlines.items() if client >= run["clients"] - late]
    return float(np.mean(values)) if values else nan


def last_measured(records: Sequence[RoundRecord]) -> RoundRecord | None:
    """The last round that measured clients."""
    return next((record for record in reversed(records) if record.client_metrics), None)
