"""Pictures of a metric, usually accuracy: curves by method, values by seed, the metric above similarity.

Every function returns a :class:`matplotlib.figure.Figure` of its own, without pyplot: nothing needs a display, and
nothing stays in memory after the figure is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fedpace.analysis._style import (
    INK,
    MUTED,
    PALETTE,
    blank,
    clean,
    finish,
    heading,
    line_styles,
    metric_above_similarity,
    note,
    round_axis,
    show_values,
    spread,
)
from fedpace.analysis._tables import Side
from fedpace.analysis.history import StageWindow, metric_curve, similarity_curve, stage_windows
from fedpace.core import ACCURACY, Metric, RoundRecord, for_figure

MOST_BANDS = 5
_KINDS = {"update": ("o", "of updates"), "gradient": ("^", "of gradients"), "probe": ("s", "of probe gradients")}


def metric_curves(
    histories: Mapping[str, Sequence[Sequence[RoundRecord]]],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
    of: Callable[[Sequence[RoundRecord]], Mapping[Any, float]] = metric_curve,
    ylabel: str | None = None,
    xlabel: str = "round",
    repetitions: str = "seeds",
    bases: Mapping[str, str] | None = None,
) -> Figure:
    """A metric by round: a line for each method's mean over seeds, in a band from its lowest to its highest seed.

    More than five methods are drawn without bands, which would hide one another. A round is drawn if every seed
    measured it: a mean over changing seeds would jump where no run did.
    ``of`` draws something else than the held-out metric: FedPACE's Fig. 1 shows :func:`client_metric_curve`. With
    another ``xlabel`` it says something at other places than rounds.
    ``repetitions`` is what the runs of a method differ in, if not seeds. ``bases`` says which methods are variants of
    which: they share a colour if there are several.
    """
    figure = blank()
    axes = figure.add_subplot()
    ends = []
    banded = len(histories) <= MOST_BANDS
    styles = line_styles(histories, bases)
    for method, runs in histories.items():
        curves = [of(records) for records in runs]
        rounds = sorted(set.intersection(*map(set, curves))) if curves else []
        if not rounds:
            continue
        values = np.array([[curve[number] for number in rounds] for curve in curves])
        colour, dashes = styles[method]
        axes.plot(rounds, values.mean(0), color=colour, linestyle=dashes, linewidth=2, label=method)
        if len(curves) > 1 and banded:
            axes.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
        ends.append((rounds[-1], float(values.mean(0)[-1]), method, styles[method]))
    clean(axes)
    if xlabel == "round":
        round_axis(axes)
    else:
        axes.set_xlabel(xlabel)
    show_values(axes.yaxis, metric)
    axes.set_ylabel(ylabel or for_figure(metric.name))
    axes.margins(x=0)
    _label_ends(axes, ends, metric)
    counts = {len(runs) for runs in histories.values()}
    if max(counts, default=0) > 1:
        all_runs = f"{max(counts) if len(counts) == 1 else 'its'} {repetitions}"
        note(axes, f"line: mean, band: lowest to highest of {all_runs}" if banded else f"mean of {all_runs}")
    heading(figure, title)
    return finish(figure, path)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, tuple[str, str]]], metric: Metric) -> None:
    """Each line's name and last value to the right of the axes, tied to its end; close labels are moved apart."""
    low, high = axes.get_ylim()
    heights = spread([value for _, value, _, _ in ends], gap=(high - low) * 0.06)
    for (last, value, method, (colour, dashes)), height in zip(ends, heights, strict=True):
        axes.plot([last], [value], "o", color=colour, markersize=5, clip_on=False, label="_end")
        axes.annotate(
            f"{for_figure(method)}  {value:.1%}" if metric.percent else f"{for_figure(method)}  {value:.3g}",
            xy=(last, value),
            xytext=(1.06, height),
            textcoords=("axes fraction", "data"),
            va="center",
            color=colour,
            # relpos: the leader ends at the left edge of the text, not behind it
            arrowprops={"arrowstyle": "-", "color": colour, "linestyle": dashes, "alpha": 0.6, "relpos": (0, 0.5)},
        )
    axes.set_ylim(low, high)


def seed_points(
    values: Mapping[str, Mapping[int, float]],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
    xlabel: str | None = None,
    repetition: str = "seed",
) -> Figure:
    """One row per method: a point for each seed's (or other ``repetition``'s) value and a bar at their mean."""
    figure = blank(height=1.2 + 0.42 * len(values))
    axes = figure.add_subplot()
    for index, by_seed in enumerate(values.values()):
        found = list(by_seed.values())
        axes.plot(found, [index] * len(found), "o", color=PALETTE[0], alpha=0.6, markersize=7, markeredgewidth=0)
        if found:
            axes.plot([np.mean(found)], [index], "|", color=INK, markersize=18, markeredgewidth=2)
    clean(axes)
    axes.set_yticks(range(len(values)), list(map(for_figure, values)))
    axes.set_ylim(len(values) - 0.5, -0.5)  # the first method on top, as in the table
    show_values(axes.xaxis, metric)
    axes.set_xlabel(f"{xlabel or for_figure(metric.name)} (point: one {repetition}, bar: mean)", wrap=True)
    heading(figure, title)
    return finish(figure, path)


def labelled_points(
    points: Mapping[str, tuple[float, float]],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
    xlabel: str,
    ylabel: str,
) -> Figure:
    """A point for each name; those that no other beats in both directions are joined by a line (the Pareto front)."""
    figure = blank()
    axes = figure.add_subplot()
    front = [
        name
        for name, (x, y) in points.items()
        if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in points.values())
    ]
    ordered = sorted(points[name] for name in front)
    axes.plot(*zip(*ordered, strict=True), color=MUTED, linewidth=1, linestyle="--", zorder=1)
    for name, (x, y) in points.items():
        colour = PALETTE[0] if name in front else MUTED
        axes.plot([x], [y], "o", color=colour, markersize=7, markeredgewidth=0)
    clean(axes)
    show_values(axes.xaxis, metric)
    show_values(axes.yaxis, metric)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.margins(0.15)
    note(axes, "line: not beaten in both")
    heading(figure, title)
    _name_points(axes, points)
    return finish(figure, path)


def _name_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Each name beside its point, on the first side where it covers no other name and no point."""
    sides: list[tuple[int, int, Side]] = [(7, 3, "left"), (7, -10, "left"), (-7, 3, "right"), (-7, -10, "right")]
    at = {name: axes.transData.transform(point) for name, point in points.items()}
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in at.values()]
    for name, point in points.items():
        for x, y, align in sides:
            label = axes.annotate(for_figure(name), point, (x, y), textcoords="offset points", fontsize=8, color=INK)
            label.set_horizontalalignment(align)
            box = label.get_window_extent()
            if (x, y, align) == sides[-1] or not any(box.overlaps(other) for other in taken):
                break
            label.remove()
        taken.append(box)


def metric_and_similarity(
    records: Sequence[RoundRecord],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
) -> Figure:
    """The metric above, mean pairwise cosine below, over the same rounds; stages are shaded (FedPACE, Fig. 2, 3, 5).

    What the cosine was measured on differs from stage to stage, so each kind has its own mark and kinds are not joined
    by a line.
    """
    return metric_and_similarity_of({"": records}, path, title, metric=metric)


def metric_and_similarity_of(
    histories: Mapping[str, Sequence[RoundRecord]],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    metric: Metric = ACCURACY,
) -> Figure:
    """:func:`metric_and_similarity` of several runs, a column each, on the same scales (FedPACE, Fig. 4)."""
    figure, columns = metric_above_similarity(len(histories), 3.5 + 3.5 * len(histories), metric)
    windows = [stage_windows(records) for records in histories.values()]
    # Plain FedAvg stays white; any other stage has the same colour in every column.
    stages = dict.fromkeys(window.stage for found in windows for window in found if window.stage != "fedavg")
    colours = {stage: PALETTE[(2 + index) % len(PALETTE)] for index, stage in enumerate(stages)}
    rows = 0
    for (upper, lower), records, found in zip(columns, histories.values(), windows, strict=True):
        values = metric_curve(records)
        upper.plot(list(values), list(values.values()), color=PALETTE[0], linewidth=2)
        _plot_similarity(lower, records)
        for axes in (upper, lower):
            axes.margins(x=0.01)
        round_axis(lower)
        rows = max(rows, _shade_stages(upper, lower, found, colours))
    for (upper, _), label in zip(columns, histories, strict=True):
        pad = 6 + 13 * rows  # above the names of stages
        upper.set_title(for_figure(label), loc="left", fontsize=11, color=INK, pad=pad)
    heading(figure, title)
    return finish(figure, path)


def _plot_similarity(axes: Axes, records: Sequence[RoundRecord]) -> None:
    values = similarity_curve(records)
    measured = [(r.round, r.similarity.kind) for r in records if r.similarity is not None and r.round in values]
    named = set()
    for kind, group in groupby(measured, key=lambda pair: pair[1]):
        rounds = [number for number, _ in group]
        marker, words = _KINDS.get(kind, ("D", for_figure(f"of {kind}")))
        label = "_" if kind in named else words  # matplotlib leaves a leading underscore out of the legend
        named.add(kind)
        ys = [values[number] for number in rounds]
        axes.plot(rounds, ys, marker=marker, markersize=4, linewidth=1.2, color=PALETTE[1], label=label)
    if named:
        gap = min(2, 0.37 * _inches(axes))  # matplotlib's own gaps at full width, smaller ones in a narrow column
        axes.legend(
            frameon=False,
            fontsize=8.5,
            ncols=len(named),
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderpad=0,
            handlelength=gap,
            columnspacing=gap,
        )
    else:
        axes.text(0.5, 0.5, "no pair of updates to compare", transform=axes.transAxes, ha="center", color=MUTED)


def _inches(axes: Axes) -> float:
    """Width of a panel, before the layout makes room for labels."""
    return float(axes.bbox.width / axes.figure.dpi)


def _shade_stages(upper: Axes, lower: Axes, windows: Sequence[StageWindow], colours: Mapping[str, str]) -> int:
    """Shade the stages that have a colour in both panels, and name each above its first window, in so many rows."""
    rounds = max((window.last for window in windows), default=0) + 1
    named = set()
    row_ends: list[float] = []
    for window in windows:
        if window.stage not in colours:
            continue
        for axes in (upper, lower):
            axes.axvspan(window.first - 0.5, window.last + 0.5, color=colours[window.stage], alpha=0.13, linewidth=0)
        if window.stage not in named:
            named.add(window.stage)
            centre = (window.first + window.last) / 2
            half = rounds * 0.046 * len(window.stage) / _inches(upper)  # half the width of the text, in rounds
            # The lowest row of labels whose last one ends before this one starts.
            row = next((i for i, end in enumerate(row_ends) if end < centre - half), len(row_ends))
            row_ends[row : row + 1] = [centre + half]
            upper.annotate(
                for_figure(window.stage),
                xy=(centre, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4 + 13 * row),
                textcoords="offset points",
                ha="center",
                color=INK,
                fontsize=9,
            )
    return len(row_ends)
