"""Pictures of rounds in virtual time: a metric over time, and conflict against staleness."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import isnan
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedpace.analysis._style import MUTED, blank, clean, finish, heading, line_style, note
from fedpace.analysis.figures import metric_curves
from fedpace.analysis.history import time_curve
from fedpace.analysis.pairs import snapshots
from fedpace.core import ACCURACY, Metric, RoundRecord, for_figure

Histories = Mapping[str, Sequence[Sequence[RoundRecord]]]
"""Method → its runs."""

_MOMENTS = 300  # at which curves of several runs are compared
_FEWEST = 30  # pairs of which a mean is drawn


def metric_over_time(
    histories: Histories,
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
    repetitions: str = "seeds",
) -> Figure:
    """A metric by virtual time: of each run what it measured last, up to the end of a method's run that ends first.

    Time is on a logarithmic scale, because rounds of one method may last many times as long as those of another.
    """
    moments = moments_of([records for runs in histories.values() for records in runs])
    sampled, words = partial(at_moments, moments=moments), "virtual time"
    figure = metric_curves(histories, title=title, metric=metric, of=sampled, xlabel=words, repetitions=repetitions)
    if moments:
        figure.axes[0].set_xscale("log")
        figure.axes[0].xaxis.set_major_formatter(FuncFormatter(lambda moment, _: f"{moment:g}"))
    return finish(figure, path)


def moments_of(histories: Iterable[Sequence[RoundRecord]]) -> list[float]:
    """Moments from the first measurement of any run to the last, closer at the beginning, with the end of each run."""
    curves = [[moment for moment in time_curve(records) if moment > 0] for records in histories]
    curves = [curve for curve in curves if curve]  # time is on a logarithmic scale
    if not curves:
        return []
    first, ends = min(map(min, curves)), {max(curve) for curve in curves}
    return sorted({*np.geomspace(first, max(ends), _MOMENTS).tolist(), *ends})


def at_moments(records: Sequence[RoundRecord], moments: Iterable[float]) -> dict[float, float]:
    """What a run measured last at each of these moments, from the first to the last measurement.

    >>> at_moments([RoundRecord(round=i, time=2.0 * i, metrics={"accuracy": 0.1 * i}) for i in (1, 2)], [1, 2, 3, 5])
    {2: 0.1, 3: 0.1}
    """
    curve = time_curve(records)
    times, values = list(curve), list(curve.values())
    measured = [moment for moment in moments if times and times[0] <= moment <= times[-1]]
    return {moment: values[bisect_right(times, moment) - 1] for moment in measured}


def cosines_by_staleness(records: Sequence[RoundRecord]) -> dict[int, list[float]]:
    """The cosines of all pairs of updates that were aggregated together, by how many steps one was older.

    >>> from fedpace.core import Similarity
    >>> similarity = Similarity(matrix=[[1.0, 0.2], [0.2, 1.0]])
    >>> cosines_by_staleness([RoundRecord(round=4, cohort=[7, 1], staleness={7: 3, 1: 1}, similarity=similarity)])
    {2: [0.2]}
    """
    staleness = {record.round: record.staleness for record in records if record.staleness}
    found: dict[int, list[float]] = {}
    for shot in snapshots(records):
        known = staleness.get(shot.round, {})
        for (i, one), (j, other) in combinations(enumerate(shot.clients), 2):
            if one in known and not isnan(shot.cosines[i, j]):
                found.setdefault(abs(known[one] - known[other]), []).append(float(shot.cosines[i, j]))
    return dict(sorted(found.items()))


def cosine_by_staleness(histories: Histories, path: str | Path | None = None, title: str | None = None) -> Figure:
    """How far updates of one buffer agree, by the difference of their staleness; the runs of a method are pooled.

    A mean of fewer than 30 pairs is not drawn. Where the clients of a method begin together, a dashed line is at the
    mean over all pairs.
    """
    figure = blank()
    axes = figure.add_subplot()
    for number, (label, runs) in enumerate(histories.items()):
        colour = line_style(number)[0]
        pooled: dict[int, list[float]] = {}
        for records in runs:
            for steps, cosines in cosines_by_staleness(records).items():
                pooled.setdefault(steps, []).extend(cosines)
        if not pooled:
            everything = [np.nanmean(shot.cosines) for records in runs for shot in snapshots(records)]
            if everything:
                axes.axhline(float(np.mean(everything)), color=colour, linestyle="--", label=for_figure(label))
            continue
        means = {steps: np.mean(cosines) for steps, cosines in sorted(pooled.items()) if len(cosines) >= _FEWEST}
        axes.plot(list(means), list(means.values()), "o-", color=colour, linewidth=2, markersize=4)
        axes.lines[-1].set_label(for_figure(label))
    clean(axes)
    axes.axhline(0, color=MUTED, linewidth=0.8, label="_zero")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.set_xlabel("how many steps older one of two updates is")
    axes.set_ylabel("mean cosine of the two")
    note(axes, "pairs of updates in one buffer, of all rounds and seeds; dashed: of clients that begin together")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8.5, edgecolor="none", framealpha=0.8)
    heading(figure, title)
    return finish(figure, path)
