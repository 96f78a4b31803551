"""Who is served well: the metric for each client, of the global model or of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from math import isnan

from fedpace.analysis._fairness import mean_fairness
from fedpace.analysis.history import Curve
from fedpace.analysis.report._html import (
    NUMBERS,
    Figure,
    Section,
    axis,
    grid,
    layout,
    line,
    number,
    panel,
    plot,
    round_axis,
    table,
    value_format,
)
from fedpace.analysis.runs import Methods, metric_of, thinned
from fedpace.core import Metric, RoundRecord

_LINES = 10  # clients up to which each one is a line; more are rows of a heat map
_ROWS = 200  # clients of a heat map; of more, evenly spaced ones are shown
_ON = {"train": "on each client's own training examples", "test": "on each client's own test examples"}


def metric_of_clients(methods: Methods) -> Section:
    """A panel for each method: a line per client, or with many clients a row per client."""
    metric = metric_of(methods)
    title = f"{metric.title} of each client"
    everyone = {label: _curves(runs[0].records) for label, runs in methods.items()}
    found = {
        label: {client: curves[client] for client in thinned(list(curves), _ROWS)} for label, curves in everyone.items()
    }
    largest = max(map(len, found.values()))
    measured = [record for runs in methods.values() for record in runs[0].records if record.client_metrics]
    where = " and ".join(_ON[on] for on in sorted({record.clients_on for record in measured}))
    shape = "Lines that stay apart" if largest <= _LINES else "Rows that stay dark"
    shape = shape if metric.rises or largest <= _LINES else "Rows that stay bright"
    reading = (
        f"{metric.title} {where}, after each round that measured the client. {shape} are clients that are served "
        "badly; the first seed of each method is shown."
    )
    if (most := max(map(len, everyone.values()))) > _ROWS:
        reading += f" Of {most} clients {_ROWS} are shown."
    if not largest:
        return Section("clients", title, reading, None)
    limit = max(NUMBERS // (2 * sum(map(len, found.values()))), 2)
    draw = _lines if largest <= _LINES else _rows
    panels = [
        panel(
            label,
            f"seed {runs[0].seed}",
            plot(draw(found[label], limit, metric), _height(largest), f"{title} by round, {label}")
            if found[label]
            else None,
        )
        for label, runs in methods.items()
    ]
    return Section("clients", title, reading, grid(panels, 440) + _evenness(methods, metric))


def _evenness(methods: Methods, metric: Metric) -> str:
    """A table of how evenly clients fare, where they have tests of their own."""
    found = {label: mean_fairness((run.records for run in runs), metric) for label, runs in methods.items()}
    rows = [
        [label, *map(metric.text, astuple(fairness))] for label, fairness in found.items() if not isnan(fairness.mean)
    ]
    header = ["method", "mean over clients", "spread", "worst tenth"]
    return table(header, rows, 1, "How evenly clients fare after the last round, mean over seeds") if rows else ""


def _curves(records: Sequence[RoundRecord]) -> dict[str, Curve]:
    found: dict[int, Curve] = {}
    for record in records:
        for client, value in record.client_headlines.items():
            found.setdefault(client, {})[record.round] = value
    return {str(client): found[client] for client in sorted(found)}


def _height(clients: int) -> int:
    return 280 if clients <= _LINES else 70 + max(4 * clients, 200)


def _lines(curves: dict[str, Curve], limit: int, metric: Metric) -> Figure:
    traces = []
    for index, (client, curve) in enumerate(curves.items()):
        rounds = thinned(list(curve), limit)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(rounds) > 1 else "markers",
                "name": f"client {client}",
                "x": rounds,
                "y": [number(curve[r]) for r in rounds],
                "line": line(index, 1.8),
                "hovertemplate": f"%{{y:{value_format(metric, 1)}}}",
                "showlegend": True,
            }
        )
    measured = [r for curve in curves.values() for r in curve]
    figure = layout(
        xaxis=round_axis(measured),
        yaxis=axis(tickformat=".0%", range=[-0.02, 1.03]) if metric.percent else axis(),
        hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    return {"data": traces, "layout": figure}


def _rows(curves: dict[str, Curve], limit: int, metric: Metric) -> Figure:
    measured = sorted({r for curve in curves.values() for r in curve})
    shown = thinned(measured, limit)
    heat = {
        "type": "heatmap",
        "x": shown,
        "y": list(curves),
        "z": [[number(curve[r], 3) if r in curve else None for r in shown] for curve in curves.values()],
        **({"zmin": 0, "zmax": 1} if metric.percent else {}),
        "colorscale": "Viridis",
        "colorbar": {"tickformat": value_format(metric, 0), "thickness": 10, "outlinewidth": 0},
        "hoverongaps": False,
        "hovertemplate": f"client %{{y}}, round %{{x}}: %{{z:{value_format(metric, 1)}}}<extra></extra>",
    }
    rows = axis("client", type="category", autorange="reversed", showgrid=False)
    figure = layout(xaxis=round_axis(shown, showgrid=False), yaxis=rows, plot_bgcolor="rgba(128,128,128,0.15)")
    return {"data": [heat], "layout": figure}
