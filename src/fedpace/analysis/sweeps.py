"""What a parameter does: accuracy and similarity at each value that was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf, isnan
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpace.analysis._style import SIMILARITY, finish, heading, line_style, metric_above_similarity, note
from fedpace.core import for_figure


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep: the value it tried, its accuracy, and its mean pairwise cosine or agreement (NaN: unknown).

    Points of one ``line`` are joined.
    """

    value: float
    accuracy: float
    similarity: float
    line: str = "mean"


def sweep_figure(
    panels: Mapping[str, Sequence[SweepPoint]],
    path: str | Path | None = None,
    title: str | None = None,
    *,
    below: str = SIMILARITY,
) -> Figure:
    """Accuracy above, mean pairwise cosine below, with a column for each swept parameter (FedPACE, Fig. 6).

    A faint dot is one run, the line joins the means of the runs at each value. Values are evenly spaced, in order. If
    there are several lines, a legend names them. ``below`` names the lower axis where it shows something else.
    """
    lines = list(dict.fromkeys(point.line for points in panels.values() for point in points))
    tried = [sorted({point.value for point in points}) for points in panels.values()]
    labels = [["∞" if isinf(value) else f"{value:g}" for value in values] for values in tried]
    # Every tick has room for the longest label and a space, at a tenth of an inch per letter.
    letters = [len(names) * (max(map(len, names), default=0) + 1) for names in labels] + [len(name) for name in panels]
    width = 1 + len(panels) * max(2.6, 0.1 * max(letters, default=0))
    figure, columns = metric_above_similarity(len(panels), max(width, 0.12 * len(title or "")), below=below)
    for (upper, lower), (name, points), values, names in zip(columns, panels.items(), tried, labels, strict=True):
        for number, line in enumerate(lines):
            own = [(values.index(p.value), p) for p in points if p.line == line]
            _plot(upper, [(x, p.accuracy) for x, p in own], line_style(number)[0], line)
            _plot(lower, [(x, p.similarity) for x, p in own], line_style(number if len(lines) > 1 else 1)[0], line)
        lower.set_xticks(range(len(names)), names)
        lower.set_xlim(-0.5, max(len(names), 1) - 0.5)
        lower.set_xlabel(for_figure(name))
    if any(len({(p.line, p.value) for p in points}) < len(points) for points in panels.values()):
        note(columns[0][0], "faint dot: one seed, line: mean")
    if len(lines) > 1:
        columns[0][0].legend(frameon=False, fontsize=8.5)
    heading(figure, title)
    return finish(figure, path)


def _plot(axes: Axes, points: Sequence[tuple[int, float]], colour: str, label: str) -> None:
    drawn = np.array([(x, y) for x, y in points if not isnan(y)]).reshape(-1, 2)
    tried = np.unique(drawn[:, 0])
    means = [drawn[drawn[:, 0] == x, 1].mean() for x in tried]
    axes.plot(*drawn.T, "o", color=colour, alpha=0.3, markersize=6, markeredgewidth=0, label="_seeds")
    axes.plot(tried, means, "o-", color=colour, linewidth=2, markersize=4, label=label)
