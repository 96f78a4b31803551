"""Sections put together to one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from fedpace.analysis.differences import flatten, grouped, unequal
from fedpace.analysis.report._html import Section
from fedpace.analysis.report.clients import metric_of_clients
from fedpace.analysis.report.curves import curves
from fedpace.analysis.report.layers import agreement_of_layers
from fedpace.analysis.report.settings import settings
from fedpace.analysis.report.similarity import pairs_of_clients
from fedpace.analysis.report.tables import comparison, cost, events
from fedpace.analysis.report.timeline import over_time
from fedpace.analysis.runs import Methods, ReportedRun, by_method
from fedpace.core import ConfigError, for_html, write_text

# The browser itself refuses to load anything from elsewhere.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_SECTIONS = (
    comparison,
    curves,
    over_time,
    pairs_of_clients,
    agreement_of_layers,
    metric_of_clients,
    events,
    cost,
    settings,
)


def write_report(runs: Sequence[ReportedRun], path: str | Path, title: str = "fedpace report") -> Path:
    """Write one HTML file with tables and pictures of all runs; it opens in any browser, without a network.

    The first run's label is the method that all others are compared with. What a run did not measure is said to be
    not measured. Missing folders are made.
    """
    if not runs:
        raise ConfigError("report: expected at least one run, found none")
    methods = by_method(runs)
    path = Path(path)
    sections = [section(methods) for section in _SECTIONS]
    write_text(path, _page(title, methods, [section for section in sections if section is not None]))
    return path


def _page(title: str, methods: Methods, sections: Sequence[Section]) -> str:
    from plotly.offline import get_plotlyjs  # slow to import, and needed by nothing else

    links = "".join(f'<a href="#{section.name}">{section.name}</a>' for section in sections)
    facts = "".join(f"<li><b>{for_html(value)}</b> {for_html(name)}</li>" for name, value in _facts(methods))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{for_html(title)}</title><style>{_asset('page.css')}</style></head>\n<body>"
        f"<header><h1>{for_html(title)}</h1><ul>{facts}</ul>{_inequalities(methods)}</header><nav>{links}</nav>\n<main>"
        + "\n".join(section.html() for section in sections)
        + f"</main>\n<script>{get_plotlyjs()}</script>\n<script>{_asset('page.js')}</script>\n</body></html>\n"
    )


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _inequalities(methods: Methods) -> str:
    """What else differs between methods than their names: a reader must know it before any table."""
    if len(methods) < 2:
        return ""
    found = unequal({label: runs[0].config for label, runs in methods.items()})
    if not found:
        return '<p class="note">Weighting, local work, rates, rounds, data and model are the same for all methods.</p>'
    items = "".join(f"<li><b>{aspect}</b> {for_html(grouped(values))}</li>" for aspect, values in found.items())
    return f'<p class="note unequal">Methods differ in more than their names:</p><ul class="unequal">{items}</ul>'


def _facts(methods: Methods) -> Iterator[tuple[str, str]]:
    """What the runs are, in a line: counts, and the settings that are the same in all of them."""
    runs = [run for found in methods.values() for run in found]
    seeds, rounds = {run.seed for run in runs}, sorted({len(run.records) for run in runs})
    yield ("method" if len(methods) == 1 else "methods"), str(len(methods))
    yield ("seed" if len(seeds) == 1 else "seeds"), str(len(seeds))
    yield "rounds", str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
    configs = [flatten(run.config) for run in runs]
    names = {"data.partition.clients": "clients", "data.source": "data", "model": "model", "model.name": "model"}
    names |= {"data.partition.name": "partition", "data.partition.alpha": "alpha"}
    for key, name in names.items():
        values = {config.get(key) for config in configs}
        if len(values) == 1 and None not in values:
            yield name, str(*values)
