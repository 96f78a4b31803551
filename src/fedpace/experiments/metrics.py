"""What reproductions measure of a run: the numbers of its summary, and some that are asked for now and then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf, nan
from typing import Any

import numpy as np
from rich.console import Console

from fedpace.aggregation import highest_below
from fedpace.analysis import cosines_by_staleness, fairness, late_clients, time_curve, value_at
from fedpace.core import RoundRecord, trusted_files
from fedpace.engine import read_run
from fedpace.experiments.attack import attack_membership
from fedpace.experiments.parsing import read_config
from fedpace.experiments.reproduction import Metric
from fedpace.experiments.run import Result, federate

TAU = 0.4  # GMA's threshold throughout
TITLES = {
    "final": "Final accuracy (%)",
    "best": "Best accuracy (%)",
    "last10": "Accuracy, mean of the last ten measured rounds (%)",
    "auc": "Area under the accuracy curve",
    "similarity": "Mean pairwise cosine of what clients send",
    "participating": "Last round: accuracy on the clients that took part (%)",
    "non_participating": "Last round: accuracy on the other clients (%)",
    "spread": "Last round: standard deviation of the clients' accuracies (points)",
    "worst_decile": "Last round: mean accuracy of the worst tenth of the clients (%)",
    "late": "Last round: mean accuracy of the clients that join late or never (%)",
    "below_tau": "Coordinates whose agreement is below 0.4, mean over rounds (%)",
    "agreement": "Agreement of the clients' signs, mean over rounds (%)",
    "attack": "Accuracy of the membership attack (%)",
    "majority": "Share of the most frequent class in the test set (%)",
    "equal_time": "Accuracy at the virtual time when the first run of its seed ends (%)",
    "time": "Virtual time at the end",
    "staleness": "Staleness of updates: mean number of steps of the server",
}


def measure(metric: Metric, result: Result, beside: Sequence[Result] = ()) -> float:
    """One number of a run, as a fraction; NaN if it was not measured. ``beside`` are all runs of the same seed."""
    if metric == "equal_time":
        return _at_equal_time(result, beside)
    if metric not in _SPECIAL:
        return float(getattr(result.summary, metric))
    with trusted_files():  # a reproduction's folder holds the run that was asked for, which was checked
        return _SPECIAL[metric](result)


def below_tau_curve(records: Sequence[RoundRecord]) -> dict[int, float]:
    """Share of the coordinates whose agreement is below 0.4, by round (GMA, Fig. 4).

    >>> from fedpace.core import Agreement
    >>> agreement = Agreement(histogram=[1, 0, 5, 4])  # of 3 clients: 1/3 and less
    >>> below_tau_curve([RoundRecord(round=0, agreement=agreement)])
    {0: 0.1}
    """
    found = {}
    for record in records:
        if record.agreement is not None:
            counts = record.agreement.histogram
            found[record.round] = sum(counts[: highest_below(TAU, len(counts) - 1) + 1]) / sum(counts)
    return found


def in_virtual_time(result: Result) -> dict[str, Any]:
    """When each round was over, and the mean cosine of pairs of updates by their difference in age, with their number.

    What a run did not have is left out.
    """
    times = [round(record.time, 6) for record in result.records if record.time is not None]
    pairs = cosines_by_staleness(result.records)
    cosines = {str(steps): [round(_mean(found), 6), len(found)] for steps, found in pairs.items()}
    return {name: found for name, found in (("times", times), ("cosines_by_staleness", cosines)) if found}


def _below_tau(result: Result) -> float:
    return _mean(below_tau_curve(result.records).values())


def _agreement(result: Result) -> float:
    return _mean([r.agreement.mean for r in result.records if r.agreement is not None and r.agreement.mean is not None])


def _participating(result: Result) -> float:
    last = result.records[-1]
    return _mean([value for client, value in last.client_headlines.items() if client in last.cohort])


def _non_participating(result: Result) -> float:
    last = result.records[-1]
    return _mean([value for client, value in last.client_headlines.items() if client not in last.cohort])


def _spread(result: Result) -> float:
    return fairness(result.records).spread


def _worst_decile(result: Result) -> float:
    return fairness(result.records).worst_decile


def _late(result: Result) -> float:
    assert result.folder is not None  # reproductions run in folders
    return late_clients(read_run(result.folder), result.records)


def _attack(result: Result) -> float:
    assert result.folder is not None  # reproductions run in folders
    return attack_membership(result.folder, console=Console(quiet=True)).attack.accuracy


def _majority(result: Result) -> float:
    """What a model achieves that always answers with the most frequent class."""
    counts = federate(read_config({"config": result.config}, str(result.folder))).test.class_counts()
    return float(counts.max() / counts.sum())


def _at_equal_time(result: Result, beside: Sequence[Result]) -> float:
    """All runs of a seed have the same clients, which are as fast in each of them."""
    curves = [time_curve(one.records) for one in (result, *beside)]
    return value_at(curves[0], min(max(curve, default=inf) for curve in curves))


def _mean(values: Collection[float]) -> float:
    return float(np.mean(list(values))) if values else nan


_SPECIAL: dict[Metric, Callable[[Result], float]] = {
    "participating": _participating,
    "non_participating": _non_participating,
    "spread": _spread,
    "worst_decile": _worst_decile,
    "late": _late,
    "below_tau": _below_tau,
    "agreement": _agreement,
    "attack": _attack,
    "majority": _majority,
}
