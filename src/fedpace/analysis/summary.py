"""One run in a dozen numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Literal

import numpy as np

from fedpace.analysis.history import Curve, metric_curve, similarity_curve
from fedpace.core import ACCURACY, Metric, RoundRecord

Fill = Literal["none", "ffill_bfill"]


@dataclass(frozen=True)
class Summary:
    """What a run achieved and what it cost. Shares are fractions; what was never measured is NaN.

    What is measured is the headline metric of the task: accuracy, for a classifier.

    Attributes:
        final: Its last measured value.
        best: Its best value.
        last10: Mean of its last ten values.
        auc: Area under its curve divided by its length in rounds; a constant curve gives its constant.
        similarity: Mean over rounds of the mean pairwise cosine.
        rounds: Number of rounds.
        accepted: Perturbations that the annealing search accepted (at most one per round).
        searched: Perturbations that it tried.
        pruned: Share of parameters that are pruned at the end.
        bytes_up: Bytes from clients to server.
        bytes_down: Bytes from server to clients.
        seconds: Wall-clock seconds, all phases together.
        time: Virtual time at the end; NaN where clients have no speeds.
        staleness: Mean over all updates of the steps that the server took since their clients began; 0 where all begin
            together.

    """

    final: float
    best: float
    last10: float
    auc: float
    similarity: float
    rounds: int
    accepted: int
    searched: int
    pruned: float
    bytes_up: int
    bytes_down: int
    seconds: float
    time: float
    staleness: float


def summarise(records: Sequence[RoundRecord], fill: Fill = "none", metric: Metric = ACCURACY) -> Summary:
    """Summarise a run whose headline is ``metric``. An empty history has no values (NaN), and everything else is 0.

    ``fill="ffill_bfill"`` averages the similarity as the authors of FedPACE do: a round that measured none takes the
    value of the round before it, or of the first measured round if there is none before.

    >>> summary = summarise([RoundRecord(round=i, metrics={"accuracy": 0.2 + 0.2 * i}) for i in range(2)])
    >>> summary.final, round(summary.auc, 3)
    (0.4, 0.3)
    """
    curve = metric_curve(records)
    values = list(curve.values())
    times = [record.time for record in records if record.time is not None]
    searches = [record.search for record in records if record.search is not None]
    return Summary(
        final=values[-1] if values else nan,
        best=metric.best(values),
        last10=_mean(values[-10:]),
        auc=_normalised_area(curve),
        similarity=_mean_similarity(records, fill),
        rounds=len(records),
        accepted=sum(search.accepted for search in searches),
        searched=sum(search.candidates for search in searches),
        pruned=records[-1].pruned if records else 0.0,
        bytes_up=sum(record.bytes_up for record in records),
        bytes_down=sum(record.bytes_down for record in records),
        seconds=float(sum(record.seconds.total for record in records)),
        time=times[-1] if times else nan,
        staleness=_mean([float(steps) for record in records for steps in record.staleness.values()] or [0.0]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else nan


def _normalised_area(curve: Curve) -> float:
    if len(curve) < 2:
        return _mean(list(curve.values()))
    rounds, values = np.array(list(curve)), np.array(list(curve.values()))
    return float(np.sum(np.diff(rounds) * (values[1:] + values[:-1]) / 2)) / int(rounds[-1] - rounds[0])


def _mean_similarity(records: Sequence[RoundRecord], fill: Fill) -> float:
    curve = similarity_curve(records)
    if fill == "none" or not curve:
        return _mean(list(curve.values()))
    carried, filled = next(iter(curve.values())), []
    for record in records:
        carried = curve.get(record.round, carried)
        filled.append(carried)
    return _mean(filled)
