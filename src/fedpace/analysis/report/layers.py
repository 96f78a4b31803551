"""In which layers clients agree, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from fedpace.analysis.agreement import chance_agreement, layers_of, mean_agreement
from fedpace.analysis.report._html import (
    NUMBERS,
    Section,
    axis,
    grid,
    layout,
    number,
    panel,
    plot,
    round_axis,
    scale,
    text,
)
from fedpace.analysis.runs import Methods, thinned
from fedpace.core import RoundRecord

_COLOURS = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, 9))]

Agreement = dict[str, dict[int, float]]
"""Layer → round → mean agreement."""


def agreement_of_layers(methods: Methods) -> Section:
    """A heat map for each method, layers down, rounds across."""
    reading = (
        "Agreement is 1 where all clients move a parameter in the same direction; what independent coin tosses would "
        "give is named beside the colours. Dark layers are where clients disagree; the first seed of each method."
    )
    title = "In which layers clients disagree"
    found = {label: _agreement(runs[0].records) for label, runs in methods.items()}
    values = [value for layers in found.values() for curve in layers.values() for value in curve.values()]
    if not values:
        return Section("layers", title, reading, None)
    chance = _chance(methods)
    low, high = min(chance, *values), max(chance, *values)
    limit = NUMBERS // sum(map(len, found.values()))
    panels = [
        panel(
            label,
            f"seed {runs[0].seed}",
            _heat_map(label, found[label], limit, (low, high)) if found[label] else None,
            _lowest(found[label], chance) if found[label] else "",
        )
        for label, runs in methods.items()
    ]
    bar = scale(_COLOURS, f"{low:.2f}", f"{high:.2f}", f"chance: {chance:.2f}; grey: not measured")
    return Section("layers", title, reading, bar + grid(panels, 440))


def _agreement(records: Sequence[RoundRecord]) -> Agreement:
    found: Agreement = {}
    for record in records:
        for layer, histogram in layers_of(record).items():
            value = mean_agreement(histogram)
            if np.isfinite(value):  # a layer without parameters, or of one client alone
                found.setdefault(layer, {})[record.round] = value
    return found


def _chance(methods: Methods) -> float:
    """What independent signs would have in the largest cohort."""
    histograms = (
        histogram for runs in methods.values() for record in runs[0].records for histogram in layers_of(record).values()
    )
    return chance_agreement(max(len(histogram) - 1 for histogram in histograms))


def _heat_map(label: str, layers: Agreement, limit: int, ends: tuple[float, float]) -> str:
    rounds = sorted({number for curve in layers.values() for number in curve})
    # Every round between the first and the last has its column: what was not measured is seen.
    shown = thinned(range(rounds[0], rounds[-1] + 1), limit)
    heat = {
        "type": "heatmap",
        "x": shown,
        "y": [text(layer, 40) for layer in layers],
        "z": [[number(curve.get(r, nan), 3) for r in shown] for curve in layers.values()],
        "zmin": ends[0],
        "zmax": ends[1],
        "colorscale": [[i / (len(_COLOURS) - 1), colour] for i, colour in enumerate(_COLOURS)],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": "%{y}, round %{x}: %{z:.3f}<extra></extra>",
    }
    axes = {
        "xaxis": round_axis(shown, showgrid=False),
        "yaxis": axis(autorange="reversed", type="category", showgrid=False, tickfont={"size": 11}, dtick=1),
    }
    figure = {"data": [heat], "layout": layout(**axes, plot_bgcolor="rgba(128,128,128,0.15)")}
    return plot(figure, 70 + 18 * max(len(layers), 3), f"Mean agreement by layer and round, {label}")


def _lowest(layers: Agreement, chance: float) -> str:
    name, curve = min(layers.items(), key=lambda item: float(np.mean(list(item[1].values()))))
    below = [number for number, value in curve.items() if value < chance]
    mean = np.mean(list(curve.values()))
    since = f"in {len(below)} of {len(curve)} rounds, first in round {below[0]}" if below else "in no round"
    return f"Least agreement: {name}, {mean:.2f} on average; below chance {since}."
