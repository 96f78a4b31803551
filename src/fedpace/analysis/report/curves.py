"""The metric and similarity over the rounds, and when which stage ran."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedpace.analysis._style import INK, PALETTE, line_style
from fedpace.analysis.history import Curve, metric_curve, similarity_curve, stage_windows
from fedpace.analysis.report._html import Section, axis, layout, line, number, plot, round_axis, text, value_format
from fedpace.analysis.runs import Methods, ReportedRun, metric_of, over_seeds
from fedpace.core import Metric

Trace = dict[str, Any]

_KINDS = {
    "update": ("circle", "updates"),
    "gradient": ("triangle-up", "gradients"),
    "probe": ("square", "probe gradients"),
}
_GAP = 34  # pixels between panels
_LABELS = 44  # pixels for the numbers and the title of the rounds axis
_BUTTONS = 28  # pixels above, for the picture's buttons


def curves(methods: Methods) -> Section:
    """The metric above, mean pairwise cosine in the middle, stages below, over the same rounds."""
    metric = metric_of(methods)
    ticks = {"tickformat": ".3~%"} if metric.percent else {}
    panels: list[tuple[str, int, list[Trace], dict[str, Any]]] = [
        (metric.name, 320, _values(methods, metric), ticks),
        ("mean cosine", 200, _similarity(methods), {"zeroline": True, "zerolinecolor": "#777777"}),
    ]
    stages = _stages(methods)
    lines = max((trace["name"].count("<br>") + 1 for trace in stages), default=1)
    panels.append(
        ("", (11 + 15 * lines) * len(stages), stages, {"autorange": "reversed", "showgrid": False, "ticklen": 5})
    )
    drawn = [found for found in panels if found[2]]
    reading = (
        "A line is the mean over seeds in a band from the lowest to the highest seed; a cosine below 0 means that the "
        f"average pair of clients pulls in opposite directions ({_marks(methods)}); a bar shows when a stage other "
        "than plain FedAvg ran. Click a method in the legend to hide it."
    )
    body = _stacked(drawn, methods) if drawn else None
    return Section("curves", f"{metric.title} and conflict over the rounds", reading, body)


def _stacked(panels: Sequence[tuple[str, int, list[Trace], dict[str, Any]]], methods: Methods) -> str:
    """One figure with panels of these heights in pixels, the first one on top."""
    total = sum(height for _, height, _, _ in panels) + _GAP * (len(panels) - 1)
    top, traces, axes = total, [], {}
    for place, (title, height, found, given) in enumerate(panels, start=1):
        name = "" if place == 1 else str(place)
        axes[f"yaxis{name}"] = axis(title, domain=[max(top - height, 0) / total, top / total], **given)
        traces += [{**trace, "xaxis": "x", "yaxis": f"y{name}"} for trace in found]
        top -= height + _GAP
    rounds = [record.round for runs in methods.values() for run in runs for record in run.records]
    figure = layout(
        **axes,
        xaxis=round_axis(rounds, anchor="y" if len(panels) == 1 else f"y{len(panels)}"),
        hovermode="x unified" if len(methods) <= 8 else "closest",
        hoverlabel={"namelength": -1},
        legend={"groupclick": "togglegroup", "tracegroupgap": 0},
        barmode="overlay",
        uniformtext={"minsize": 9, "mode": "hide"},
        margin={"l": 8, "r": 8, "t": _BUTTONS, "b": _LABELS},
    )
    says = f"{panels[0][0]}, mean pairwise cosine and stages by round, one line per method"
    return plot({"data": traces, "layout": figure}, total + _LABELS + _BUTTONS, says)


def _values(methods: Methods, metric: Metric) -> list[Trace]:
    traces = []
    for index, (label, runs) in enumerate(methods.items()):
        values = over_seeds([metric_curve(run.records) for run in runs])
        if not values:
            continue
        rounds = list(values)
        if max(map(len, values.values())) > 1:
            traces.append(_band(label, index, values))
        means = [number(fmean(found)) for found in values.values()]
        hover = f"%{{y:{value_format(metric)}}}"
        traces.append(
            {
                **_trace(label, rounds, means, hover),
                "mode": "lines" if len(rounds) > 1 else "markers",
                "line": line(index, 2.4),
                "showlegend": True,
            }
        )
    return traces


def _trace(label: str, x: Sequence[int], y: Sequence[float | None], hover: str) -> Trace:
    common = {"type": "scatter", "name": text(label), "legendgroup": label, "showlegend": False}
    return {**common, "x": list(x), "y": list(y), "hovertemplate": hover}


def _band(label: str, index: int, values: dict[int, list[float]]) -> Trace:
    """The area between the lowest and the highest seed: there along the lowest, back along the highest."""
    rounds, colour = list(values), line_style(index)[0]
    edge = [number(min(found)) for found in values.values()] + [number(max(values[r])) for r in reversed(rounds)]
    return {
        "type": "scatter",
        "legendgroup": label,
        "showlegend": False,
        "x": [*rounds, *reversed(rounds)],
        "y": edge,
        "fill": "toself",
        "fillcolor": _transparent(colour, 0.15),
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
    }


def _similarity(methods: Methods) -> list[Trace]:
    """One trace for each method and kind of vector: values of different kinds are not joined by a line."""
    traces = []
    for index, (label, runs) in enumerate(methods.items()):
        for kind in _kinds(runs):
            values = over_seeds([_of_kind(run, kind) for run in runs])
            if not values:
                continue
            symbol, words = _KINDS.get(kind, ("diamond", kind))
            rounds = range(min(values), max(values) + 1)
            means = [number(fmean(values[r])) if r in values else None for r in rounds]
            hover = f"%{{y:.3f}} <i>({text(words)})</i>"
            trace = _trace(label, rounds, means, hover)
            marker = {"symbol": symbol, "size": 5, "color": line(index)["color"]}
            traces.append({**trace, "mode": "lines+markers", "line": line(index, 1.4), "marker": marker})
    return traces


def _of_kind(run: ReportedRun, kind: str) -> Curve:
    values = similarity_curve(run.records)
    kinds = {r.round: r.similarity.kind for r in run.records if r.similarity is not None}
    return {number: value for number, value in values.items() if kinds[number] == kind}


def _kinds(runs: Sequence[ReportedRun]) -> list[str]:
    found = (record.similarity for run in runs for record in run.records)
    return list(dict.fromkeys(similarity.kind for similarity in found if similarity is not None))


def _marks(methods: Methods) -> str:
    """What the marks of the cosine mean, for the kinds that occur."""
    kinds = dict.fromkeys(kind for runs in methods.values() for kind in _kinds(runs)) or {"update": None}
    marks = (_KINDS.get(kind, ("diamond", kind)) for kind in kinds)
    return ", ".join(f"{symbol.removesuffix('-up')}: of {words}" for symbol, words in marks)


def _stages(methods: Methods) -> list[Trace]:
    """A row for each method, with a bar for each window of a stage other than plain FedAvg."""
    colours: dict[str, str] = {}
    traces = []
    for label, runs in methods.items():
        windows = [w for w in stage_windows(max(runs, key=lambda run: len(run.records)).records) if w.stage != "fedavg"]
        for window in windows:
            colours.setdefault(window.stage, _transparent(PALETTE[(2 + len(colours)) % len(PALETTE)], 0.35))
        if not windows:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "legendgroup": label,
                "showlegend": False,
                "name": text(label),
                "y": [text(label)] * len(windows),
                "base": [window.first - 0.5 for window in windows],
                "x": [window.last - window.first + 1 for window in windows],
                "text": [text(window.stage) for window in windows],
                "customdata": [f"rounds {window.first}–{window.last}" for window in windows],
                "hovertemplate": "%{text}, %{customdata}<extra></extra>",
                "marker": {"color": [colours[window.stage] for window in windows]},
                "insidetextanchor": "middle",
                "textposition": "inside",
                "textangle": 0,
                "textfont": {"color": INK},
                "width": 0.8,
            }
        )
    return traces


def _transparent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
