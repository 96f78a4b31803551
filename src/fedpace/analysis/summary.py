"""One run in a dozen numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Literal

import numpy as np
from scipy.integrate import trapezoid

from fedpace.analysis.history import Curve, Record, accuracy_curve, similarity_curve

Fill = Literal["none", "ffill_bfill"]


@dataclass(frozen=True)
class Summary:
    """What a run achieved and what it cost. Accuracies and shares are fractions; what was never measured is NaN.

    Attributes:
        final: Last measured accuracy.
        best: Highest measured accuracy.
        last10: Mean of the last ten measured accuracies.
        auc: Area under the accuracy curve divided by its length in rounds; a constant curve gives its constant.
        similarity: Mean over rounds of the mean pairwise cosine.
        rounds: Number of rounds.
        accepted: Perturbations that the annealing search accepted (at most one per round).
        searched: Perturbations that it tried.
        pruned: Share of parameters that are pruned at the end.
        bytes_up: Bytes from clients to server.
        bytes_down: Bytes from server to clients.
        seconds: Wall-clock seconds, all phases together.

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


def summarise(records: Sequence[Record], fill: Fill = "none") -> Summary:
    """Summarise a run. An empty history has no accuracy and no similarity (NaN), and everything else is 0.

    ``fill="ffill_bfill"`` averages the similarity as the authors of FedPACE do: a round that measured none takes the
    value of the round before it, or of the first measured round if there is none before.

    >>> summary = summarise([{"round": 0, "accuracy": 0.2}, {"round": 1, "accuracy": 0.4}])
    >>> summary.final, round(summary.auc, 3)
    (0.4, 0.3)
    """
    curve = accuracy_curve(records)
    accuracies = list(curve.values())
    searches = [record["search"] for record in records if record.get("search")]
    return Summary(
        final=accuracies[-1] if accuracies else nan,
        best=max(accuracies, default=nan),
        last10=_mean(accuracies[-10:]),
        auc=_normalised_area(curve),
        similarity=_mean_similarity(records, fill),
        rounds=len(records),
        accepted=sum(int(search["accepted"]) for search in searches),
        searched=sum(search["candidates"] for search in searches),
        pruned=records[-1].get("pruned", 0.0) if records else 0.0,
        bytes_up=sum(record.get("bytes_up", 0) for record in records),
        bytes_down=sum(record.get("bytes_down", 0) for record in records),
        seconds=float(sum(sum(record.get("seconds", {}).values()) for record in records)),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else nan


def _normalised_area(curve: Curve) -> float:
    rounds, values = list(curve), list(curve.values())
    if len(values) < 2:
        return _mean(values)
    return float(trapezoid(values, rounds)) / (rounds[-1] - rounds[0])


def _mean_similarity(records: Sequence[Record], fill: Fill) -> float:
    curve = similarity_curve(records)
    if fill == "none" or not curve:
        return _mean(list(curve.values()))
    carried, filled = next(iter(curve.values())), []
    for record in records:
        carried = curve.get(record["round"], carried)
        filled.append(carried)
    return _mean(filled)
