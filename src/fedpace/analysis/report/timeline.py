"""The metric over virtual time, for runs whose clients have speeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedpace.analysis.asynchrony import at_moments, moments_of
from fedpace.analysis.report._html import Section, axis, layout, line, number, plot, text, value_format
from fedpace.analysis.runs import Methods, ReportedRun, metric_of
from fedpace.core import Metric

_HEIGHT = 340  # pixels


def over_time(methods: Methods) -> Section | None:
    """A line for each method, from its first measurement to the end of its first run to end; none without a clock."""
    moments = moments_of(run.records for runs in methods.values() for run in runs)
    metric = metric_of(methods)
    traces = [_trace(index, label, runs, moments, metric) for index, (label, runs) in enumerate(methods.items())]
    traces = [trace for trace in traces if trace["x"]]
    if not traces:
        return None
    ticks = {"tickformat": ".3~%"} if metric.percent else {}
    figure = layout(xaxis=axis("virtual time", type="log"), yaxis=axis(metric.name, **ticks), showlegend=True)
    reading = (
        "In virtual time a turn of a client lasts as long as the client's speed says, and a synchronous round as long "
        "as its slowest client. A line is the mean over seeds of what was measured last, up to the end of the seed "
        "that ends first."
    )
    says = f"{metric.name} by virtual time, one line per method"
    return Section(
        "time", f"{metric.title} over virtual time", reading, plot({"data": traces, "layout": figure}, _HEIGHT, says)
    )


def _trace(
    index: int, label: str, runs: Sequence[ReportedRun], moments: Sequence[float], metric: Metric
) -> dict[str, Any]:
    found = [at_moments(run.records, moments) for run in runs]
    common = [moment for moment in moments if all(moment in curve for curve in found)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(label),
        "x": [number(moment) for moment in common],
        "y": [number(fmean(curve[moment] for curve in found)) for moment in common],
        "line": {**line(index, 2.4), "shape": "hv"},
        "hovertemplate": f"%{{y:{value_format(metric)}}} at %{{x:.4~g}}",
    }
