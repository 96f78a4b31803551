"""What came out, what it cost, and what happened on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import isnan
from statistics import fmean
from typing import get_args

from rich.filesize import decimal

from fedpace.analysis.comparison import Comparison, Metric
from fedpace.analysis.report._html import Section, grid, scrolling, table
from fedpace.analysis.runs import Methods, ReportedRun, metric_of
from fedpace.analysis.show import dropped_clients, duration, privacy_of
from fedpace.analysis.summary import Summary, summarise
from fedpace.core import Seconds


def comparison(methods: Methods) -> Section:
    """Final, best and last-ten values and area under the curve, each with paired differences."""
    headline = metric_of(methods)
    summaries = {
        label: {run.seed: summarise(run.records, metric=headline) for run in runs} for label, runs in methods.items()
    }
    compared = [Comparison(summaries, metric=metric, headline=headline) for metric in get_args(Metric)]
    body = grid([scrolling(one._repr_html_()) for one in compared], 470)
    reading = f"One row per method, compared seed by seed with {compared[0].reference}; {compared[0].caption}"
    return Section("comparison", "Comparison", reading, f'<div class="comparison">{body}</div>')


def cost(methods: Methods) -> Section:
    """Traffic and time of one run, as the mean over seeds."""
    phases = [field.name for field in fields(Seconds)]
    timed = any(record.time is not None for run in _all(methods) for record in run.records)
    header = ["method", "rounds", "up", "down", "time", *phases, *(["virtual time", "staleness"] if timed else [])]
    rows = []
    for label, runs in methods.items():
        found = [summarise(run.records) for run in runs]
        seconds = [fmean(_seconds(run, phase) for run in runs) for phase in phases]
        rows.append(
            [
                label,
                f"{fmean(one.rounds for one in found):.4g}",
                decimal(round(fmean(one.bytes_up for one in found))),
                decimal(round(fmean(one.bytes_down for one in found))),
                *map(duration, [fmean(one.seconds for one in found), *seconds]),
                *(_virtual(found) if timed else []),
            ]
        )
    reading = (
        "Bytes that all clients together sent and received in one run, and wall-clock time by phase, as means over "
        "seeds; times of runs that shared a machine are not comparable to those of runs that had it alone."
    )
    if timed:
        reading += (
            " Virtual time is that of simulated clients with speeds; staleness is how many steps the server took, on "
            "average, while a client was at work."
        )
    measured = any(run.records for run in _all(methods))
    return Section("cost", "Cost", reading, table(header, rows, 1, "One run, mean over seeds") if measured else None)


def _virtual(summaries: Sequence[Summary]) -> list[str]:
    """Time and staleness, where clients have speeds."""
    time, staleness = fmean(one.time for one in summaries), fmean(one.staleness for one in summaries)
    return ["–", "–"] if isnan(time) else [f"{time:.4g}", f"{staleness:.2f}"]


def _seconds(run: ReportedRun, phase: str) -> float:
    return float(sum(getattr(record.seconds, phase) for record in run.records))


def events(methods: Methods) -> Section:
    """Search, pruning, dropped clients and warnings, where there were any."""
    body = _actions(methods) + _warnings(methods)
    reading = (
        "Search counts perturbations that annealing accepted of those it tried; pruned and frozen are shares of the "
        "parameters at the end; a dropped client returned nothing usable in those rounds. Runs to which nothing "
        "happened are left out."
    )
    nothing = '<p class="missing">No search, no pruning, no dropped client, no warning.</p>'
    return Section("events", "What happened on the way", reading, body or nothing)


def _actions(methods: Methods) -> str:
    rows = []
    for run in _all(methods):
        summary = summarise(run.records)
        search = f"{summary.accepted} of {summary.searched} accepted" if summary.searched else ""
        pruned = f"{summary.pruned:.2%}" if any(record.pruned for record in run.records) else ""
        frozen = f"{run.records[-1].frozen:.2%}" if any(record.frozen for record in run.records) else ""
        dropped = "; ".join(f"{client}: {why}" for client, why in dropped_clients(run.records))
        private = "; ".join(f"{name} {value}" for name, value in privacy_of(run.config, run.records) if "ε" in name)
        if search or pruned or frozen or dropped or private:
            cells = (search, pruned, frozen, dropped, private)
            rows.append([run.label, str(run.seed), *(cell or "–" for cell in cells)])
    header = ["method", "seed", "search", "pruned", "frozen", "dropped clients", "privacy"]
    return table(header, rows, 7, "Search, pruning, freezing, dropped clients and privacy") if rows else ""


def _warnings(methods: Methods) -> str:
    """Each warning once, with the runs that gave it."""
    given: dict[str, dict[str, list[str]]] = {}
    for run in _all(methods):
        for warning in run.warnings:
            given.setdefault(str(warning), {}).setdefault(run.label, []).append(str(run.seed))
    rows = [[_runs(by_label), warning] for warning, by_label in given.items()]
    return table(["runs", "warning"], rows, 2, "Warnings") if rows else ""


def _runs(by_label: dict[str, list[str]]) -> str:
    return "; ".join(
        f"{label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" for label, seeds in by_label.items()
    )


def _all(methods: Methods) -> Iterable[ReportedRun]:
    return (run for runs in methods.values() for run in runs)
