"""What was set: common to all methods, and what makes each one different."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedpace.analysis.differences import differences, flatten
from fedpace.analysis.report._html import Section
from fedpace.analysis.runs import Methods
from fedpace.core import for_html

_IDENTITY = {"method", "kind", "description", "seed", "tunable"}  # said elsewhere, or nothing that was set


def settings(methods: Methods) -> Section:
    """Common settings once, then for each method what differs from the first one."""
    configs = {label: _without_identity(runs[0].config) for label, runs in methods.items()}
    flat = {label: flatten(config) for label, config in configs.items()}
    first = next(iter(flat.values()))
    common = {key: value for key, value in first.items() if all(other.get(key) == value for other in flat.values())}
    reading = (
        "What all runs share stands once; below it, the first method with the settings that vary, and every other "
        "method with only what differs from the first."
    )
    own = {key: value for key, value in first.items() if key not in common}
    reference, *others = methods
    rows = [_method(reference, methods, own)]
    rows += [_method(label, methods, dict(differences(configs[reference], configs[label]))) for label in others]
    body = _list(common) + "".join(rows) + f'<p class="note">{for_html(_versions())}</p>'
    return Section("settings", "Settings", reading, body)


def _without_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _IDENTITY}


def _method(label: str, methods: Methods, given: Mapping[str, str]) -> str:
    runs = methods[label]
    seeds = ", ".join(str(run.seed) for run in runs)
    head = f"{for_html(label)} <small>seed{'s' if len(runs) > 1 else ''} {for_html(seeds)}</small>"
    description = for_html(str(runs[0].config.get("description") or ""))
    inner = _list(given) if given else '<p class="missing">Nothing differs from the first method.</p>'
    if not given and label == next(iter(methods)):
        inner = ""
    return f'<h3>{head}</h3><p class="note">{description}</p>{inner}'


def _list(given: Mapping[str, str]) -> str:
    items = (f"<div><dt>{for_html(key)}</dt><dd>{for_html(value)}</dd></div>" for key, value in given.items())
    return f'<dl class="settings">{"".join(items)}</dl>'


def _versions() -> str:
    """What wrote the report; what a run was made with stands in its ``run.json``."""
    found = [f"Python {platform.python_version()}"]
    for name in ("fedpace", "torch", "numpy", "scipy", "plotly"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # fedpace run from its sources
            continue
    return f"Report written with {', '.join(found)}; the versions of each run stand in its run.json."
