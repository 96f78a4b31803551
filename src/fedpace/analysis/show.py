"""The overview of one run for a terminal: what was set, what came out, what went wrong, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from itertools import islice
from math import isnan
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedpace.analysis._fairness import fairness, late_clients, on_own_tests
from fedpace.analysis.history import StageWindow, metric_curve, stage_windows
from fedpace.analysis.summary import Summary, summarise
from fedpace.core import ACCURACY, Metric, RoundRecord, Seconds, for_terminal, printable

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # columns of a sparkline
_CLIENTS = 30  # lines about clients
_OLDEST = 3  # clients whose updates are named as the oldest ones


def run_overview(run: Mapping[str, Any], records: Sequence[RoundRecord], metric: Metric = ACCURACY) -> RenderableType:
    """Everything that ``fedpace show`` prints about a run, from its ``run.json`` and rounds. Keys may be missing."""
    summary = summarise(records, metric=metric)
    sections = {
        "Settings": _settings(run),
        metric.title: [
            *_measured(summary, records, metric),
            *_over_clients(run, records, metric),
        ],
        "Stages": stage_rows(run.get("config") or {}, stage_windows(records)),
        "Conflict": _conflict(summary, records),
        "Dropped clients": dropped_clients(records),
        "Bounds": bounded_clients(records),
        "Privacy": privacy_of(run.get("config") or {}, records),
        "Rounds without a step": _still(records),
        "Virtual time": _virtual_time(summary, records),
        "Cost": _cost(summary, records),
        "Warnings": [("", str(warning)) for warning in run.get("warnings") or ()],
    }
    return panels(sections)


Rows = list[tuple[str, str]]


def panels(sections: Mapping[str, Rows]) -> Group:
    """A box with a title for each section that has rows: names, and what there is to say of them."""
    return Group(*(_panel(title, rows) for title, rows in sections.items() if rows))


def _panel(title: str, rows: Rows) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for name, value in rows:
        grid.add_row(*(Text(printable(cell)) for cell in (name, value)))  # names and messages may hold [brackets]
    return Panel(grid, title=for_terminal(title), title_align="left", border_style="dim")


def _settings(run: Mapping[str, Any]) -> Rows:
    facts = {**(run.get("config") or {}), "seed": run.get("seed"), "tunable": None}  # nothing that was set
    facts |= {key: run.get(key) for key in ("versions", "machine")}
    described = {key: _describe(value) for key, value in facts.items() if value not in (None, {}, [], "")}
    return [(key, text) for key, text in described.items() if text]


def _describe(value: Any) -> str:
    """Config in one line: a table is its name and its parameters, a list of tables their names."""
    if isinstance(value, Mapping):
        given = {key: inner for key, inner in value.items() if inner not in (None, {}, [])}
        name = str(given.pop("name", ""))
        parameters = ", ".join(f"{key}={_describe(inner)}" for key, inner in given.items())
        return f"{name} ({parameters})" if name and parameters else name or parameters
    if isinstance(value, list):
        names = (item.get("name", item) if isinstance(item, Mapping) else item for item in value)
        return ", ".join(map(_describe, names))
    return str(value)


def stage_rows(config: Mapping[str, Any], windows: Sequence[StageWindow]) -> Rows:
    """When each stage is, and what it does."""
    paced = bool((config.get("dampen") or {}).get("pace"))
    training = "local steps paced by agreement" if paced else "training"
    meanings = {
        "anneal": f"a search for a point where clients agree better, then {training}",
        "dampen": training if paced else "steps dampened where clients disagree on the sign",
        "prune": "as dampening; coordinates in persistent conflict are pruned",
        "freeze": f"{training}; more and more coordinates in which clients disagree stand still",
    }
    return [
        (w.stage, f"rounds {_window(w.first, w.last)}" + (f": {meanings[w.stage]}" if w.stage in meanings else ""))
        for w in windows
    ]


def _measured(summary: Summary, records: Sequence[RoundRecord], metric: Metric) -> Rows:
    if isnan(summary.final):
        return [("", f"no round measured {metric.name}")]
    values = list(metric_curve(records).values())
    last = next(record for record in reversed(records) if record.headline is not None)
    return [
        ("final", metric.text(summary.final)),
        ("best", metric.text(summary.best)),
        ("mean of last 10", metric.text(summary.last10)),
        ("area under curve", f"{summary.auc:.4f}"),
        ("by round", f"{sparkline(values)}  {metric.text(min(values))} to {metric.text(max(values))}"),
        *((name, f"{value:.4g}") for name, value in [*last.metrics.items()][1:] if value is not None),
    ]


def _over_clients(run: Mapping[str, Any], records: Sequence[RoundRecord], metric: Metric) -> Rows:
    """How evenly clients fare, where they are measured on tests of their own."""
    if not on_own_tests(records):
        return []
    found, late = fairness(records, metric), late_clients(run, records)
    mean, spread, worst = map(metric.text, astuple(found))
    even = f"{mean} on average, spread {spread}, worst decile {worst}"
    return [("over clients", even)] + ([] if isnan(late) else [("late clients", metric.text(late))])


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """A curve in one line of text, from its lowest to its highest value; at most ``width`` columns.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▄█'
    """
    if len(values) > width:
        values = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[int((value - low) / span * (len(_BLOCKS) - 1))] for value in values)


def _conflict(summary: Summary, records: Sequence[RoundRecord]) -> Rows:
    rows = []
    if not isnan(summary.similarity):
        rows.append(("pairwise cosine", f"{summary.similarity:+.3f} on average"))
    if summary.searched:
        searches = [record.search.accepted for record in records if record.search is not None]
        found = f"accepted {summary.accepted} of {summary.searched} perturbations"
        where = f" (in {sum(searches)} of {len(searches)} rounds)" if summary.accepted else ": the search did nothing"
        rows.append(("annealing", found + where))
    if any(record.pruned for record in records):
        rows.append(("pruned", f"{summary.pruned:.2%} of the parameters"))
    if any(record.frozen for record in records):
        rows.append(
            (
                "frozen",
                f"{records[-1].frozen:.2%} of the parameters in the last round: clients sent no update of them",
            )
        )
    return rows


def dropped_clients(records: Sequence[RoundRecord]) -> Rows:
    """Who was dropped, why and in which rounds."""
    rounds: dict[tuple[int, str], list[int]] = {}
    for record in records:
        for drop in (*record.dropped, *record.unmeasured):
            rounds.setdefault((drop.client, drop.reason), []).append(record.round)
    return _by_client(rounds)


def bounded_clients(records: Sequence[RoundRecord]) -> Rows:
    """Who reached a bound of the guard, and in which rounds."""
    rounds: dict[tuple[int, str], list[int]] = {}
    for record in records:
        for client in record.capped:
            rounds.setdefault((client, "counted for less than its examples"), []).append(record.round)
        for client in record.shortened:
            rounds.setdefault((client, "update shortened"), []).append(record.round)
    bounds = [record.bound for record in records if record.bound is not None]
    last = [("length of updates", f"at most {bounds[-1]:.4g} in the last round")] if bounds else []
    return last + _by_client(rounds)


def privacy_of(config: Mapping[str, Any], records: Sequence[RoundRecord]) -> Rows:
    """What a private run told, and how that grew: models of a client, clients of an example."""
    settings, steps = config.get("privacy") or {}, (config.get("local") or {}).get("private") or {}
    other = "in place of another" if settings.get("sampling") == "fixed" else "more or less"
    of_clients = {record.round + 1: record.epsilon for record in records if record.epsilon is not None}
    of_examples = {record.round + 1: record.local_epsilon for record in records if record.local_epsilon is not None}
    return [
        *_spent("ε", of_clients, settings, f"one client {other}, from whoever sees the models"),
        *_spent("local ε", of_examples, steps, "one example of a client, from whoever sees what the client sends"),
    ]


def _spent(name: str, by_round: Mapping[int, float], settings: Mapping[str, Any], protects: str) -> Rows:
    if not by_round:
        return []
    values = list(by_round.values())
    return [
        (name, f"{values[-1]:.4g} at δ = {settings.get('delta')} after {max(by_round)} rounds"),
        ("protects", protects),
        ("by round", f"{sparkline(values)}  {min(values):.3g} to {max(values):.3g}"),
    ]


def _still(records: Sequence[RoundRecord]) -> Rows:
    """Rounds after which the model was what it had been before."""
    rounds: dict[str, list[int]] = {}
    for record in records:
        if record.still:
            rounds.setdefault(record.still, []).append(record.round)
    return [(reason, _rounds(when)) for reason, when in rounds.items()]


def _by_client(rounds: Mapping[tuple[int, str], Sequence[int]]) -> Rows:
    """What happened to which client, in these rounds; of many clients, to the first ones."""
    rows = [
        (f"client {client}", f"{what}: {_rounds(when)}") for (client, what), when in islice(rounds.items(), _CLIENTS)
    ]
    others = {client for client, _ in list(rounds)[_CLIENTS:]}
    return rows + ([(f"{len(others)} more", "named in rounds.jsonl")] if others else [])


def _virtual_time(summary: Summary, records: Sequence[RoundRecord]) -> Rows:
    """How long the rounds took, and how old updates were."""
    if isnan(summary.time):
        return []
    rows = [("at the end", f"{summary.time:.4g}"), ("a round", f"{summary.time / summary.rounds:.4g} on average")]
    by_client: dict[int, list[int]] = {}
    for record in records:
        for client, steps in record.staleness.items():
            by_client.setdefault(client, []).append(steps)
    if not by_client:
        return rows
    oldest = sorted(by_client, key=lambda client: -fmean(by_client[client]))[:_OLDEST]
    named = ", ".join(f"{client} ({fmean(by_client[client]):.1f})" for client in oldest)
    most = max(map(max, by_client.values()))
    return [
        *rows,
        ("staleness", f"{summary.staleness:.2f} steps of the server on average, at most {most}"),
        ("oldest updates", f"of clients {named}"),
    ]


def _cost(summary: Summary, records: Sequence[RoundRecord]) -> Rows:
    phases = [field.name for field in fields(Seconds)]
    seconds = {phase: sum(getattr(record.seconds, phase) for record in records) for phase in phases}
    total = summary.seconds
    return [
        ("rounds", str(summary.rounds)),
        ("up", decimal(summary.bytes_up)),
        ("down", decimal(summary.bytes_down)),
        ("time", duration(total)),
        *((f"  {phase}", f"{duration(spent)}  {spent / (total or 1.0):.0%}") for phase, spent in seconds.items()),
    ]


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _window(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _rounds(numbers: Iterable[int]) -> str:
    """Round numbers with runs joined: ``round 4``, ``rounds 1–3, 7``."""
    windows: list[tuple[int, int]] = []
    for number in numbers:
        if windows and number == windows[-1][1] + 1:
            windows[-1] = (windows[-1][0], number)
        else:
            windows.append((number, number))
    plural = len(windows) > 1 or windows[0][0] != windows[0][1]
    return f"round{'s' if plural else ''} " + ", ".join(_window(*window) for window in windows)
