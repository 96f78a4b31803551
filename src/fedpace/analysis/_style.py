"""How our figures look, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedpace.core import ACCURACY, ConfigError, Metric, for_figure, writing

# Okabe & Ito's palette for colour-blind readers, without its yellow, which vanishes on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, MUTED, GRID = "#333333", "#777777", "#E6E6E6"
_DASHES = ("-", "--", ":")  # the next one from where the palette repeats
_UNDATED: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def line_style(index: int) -> tuple[str, str]:
    """Colour and dashes of the ``index``-th line: 21 lines can be told apart."""
    return PALETTE[index % len(PALETTE)], _DASHES[index // len(PALETTE) % len(_DASHES)]


def line_styles(labels: Iterable[str], bases: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
    """Colour and dashes of each line. Where lines have several ``bases``, those of one share a colour.

    >>> line_styles(["a", "a + mask", "b"], {"a + mask": "a"})
    {'a': ('#0072B2', '-'), 'a + mask': ('#0072B2', '--'), 'b': ('#D55E00', '-')}
    """
    found: dict[str, list[str]] = {}
    for label in labels:
        found.setdefault((bases or {}).get(label, label), []).append(label)
    if len(found) == 1 or max(map(len, found.values()), default=1) == 1:
        return {label: line_style(index) for index, label in enumerate(chain.from_iterable(found.values()))}
    return {
        label: (line_style(base)[0], _DASHES[variant % len(_DASHES)])
        for base, variants in enumerate(found.values())
        for variant, label in enumerate(variants)
    }


def blank(width: float = 7.0, height: float = 4.2) -> Figure:
    """An empty figure, in inches, that makes room for its own labels."""
    return Figure(figsize=(width, height), layout="constrained")


SIMILARITY = "mean pairwise cosine"


def metric_above_similarity(
    columns: int, width: float, metric: Metric = ACCURACY, below: str = SIMILARITY
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """An empty figure and the two panels of each of its columns; a row shares its y axis, a column its x axis.

    What stands ``below`` is usually similarity.

    Two panels instead of two scales in one, because where two scales cross is the drawer's choice.
    """
    if not columns:
        raise ConfigError(f"{metric.name} and similarity: expected at least one column to draw, found none")
    figure = blank(width, height=5.2)
    grid = figure.subplots(2, columns, sharex="col", sharey="row", squeeze=False, height_ratios=(3, 2))
    for axes in grid.flat:
        clean(axes)
    for lower in grid[1]:
        lower.axhline(0, color=MUTED, linewidth=0.8, label="_zero")
    show_values(grid[0, 0].yaxis, metric)
    grid[0, 0].set_ylabel(for_figure(metric.name))
    grid[1, 0].set_ylabel(below)
    return figure, [(upper, lower) for upper, lower in grid.T]


def clean(axes: Axes) -> None:
    """Only the two spines that carry numbers, and a faint horizontal grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.tick_params(colors=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def round_axis(axes: Axes) -> None:
    """The x axis counts rounds: whole numbers only."""
    axes.set_xlabel("round")
    ticks = 6 if axes.dataLim.x1 >= 1000 else 10  # long numbers need room
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))


def show_values(axis: Axis, metric: Metric) -> None:
    """Fractions are shown as percent, with decimals only where the ticks need them; other metrics as they are."""
    if metric.percent:
        axis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{fraction * 100:.3g}%"))


def heading(figure: Figure, title: str | None) -> None:
    """A bold title at the upper left, if there is one."""
    if title:
        figure.suptitle(for_figure(title), x=0.01, ha="left", fontweight="bold", color=INK)


def note(axes: Axes, text: str) -> None:
    """A small line above the axes that says how to read them."""
    axes.set_title(text, loc="left", fontsize=8.5, color=MUTED)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions pushed apart until neighbours are at least ``gap`` from each other; a crowd keeps its centre.

    >>> spread([1.0, 0.0, 1.5], gap=0.75)
    [0.875, 0.0, 1.625]
    """
    order = sorted(range(len(positions)), key=positions.__getitem__)
    # Subtracting each one's place in the queue turns "gap apart" into "in order"; a block out of order takes its mean.
    blocks: list[list[float]] = []
    for place, index in enumerate(order):
        blocks.append([positions[index] - place * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = [fmean(block) for block in blocks for _ in block]
    placed = dict(zip(order, (value + place * gap for place, value in enumerate(level)), strict=True))
    return [placed[index] for index in range(len(positions))]


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, SVG or PDF, as the suffix says; missing folders are made. Equal figures, equal files."""
    path = Path(path)
    if path.suffix.lower() not in _UNDATED:
        raise ConfigError(f"figure '{path}': expected a name ending in {', '.join(_UNDATED)}, found '{path.suffix}'")
    with writing(path), rc_context({"svg.hashsalt": "fedpace"}):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200, metadata=_UNDATED[path.suffix.lower()])


def finish(figure: Figure, path: str | Path | None) -> Figure:
    """The figure itself, saved first if there is a path."""
    if path is not None:
        save(figure, path)
    return figure
