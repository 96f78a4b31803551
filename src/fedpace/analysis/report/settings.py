"""What was set: common to all methods, and what makes each one different."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedpace.analysis.report._html import Section
from fedpace.analysis.report._runs import Methods

_IDENTITY = {"method", "kind", "description", "seed"}  # said by the label, or by the list of seeds


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
    body = _list(common) + "".join(rows) + f'<p class="note">{escape(_versions())}</p>'
    return Section("settings", "Settings", reading, body)


def flatten(config: Any, prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted keys; what is not set is left out.

    >>> flatten({"local": {"lr": 0.1, "clip": None}, "model": "linear"})
    {'local.lr': '0.1', 'model': 'linear'}
    """
    if isinstance(config, Mapping):
        parts = (flatten(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in config.items())
        return {key: value for part in parts for key, value in part.items()}
    return {} if config is None or config == [] else {prefix: str(config)}


def differences(first: Any, other: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys whose value differs from the first, with the other's value; a missing table is named once.

    >>> dict(differences({"dampen": {"lr": 1.0, "first": 20}, "k": 1}, {"dampen": None, "k": 2}))
    {'dampen': 'not set', 'k': '2'}
    """
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*first, *other]):
            yield from differences(first.get(key), other.get(key), f"{prefix}.{key}" if prefix else str(key))
    elif first != other:
        yield from flatten(other, prefix).items() or [(prefix, "not set")]


def _without_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _IDENTITY}


def _method(label: str, methods: Methods, given: Mapping[str, str]) -> str:
    runs = methods[label]
    seeds = ", ".join(str(run.seed) for run in runs)
    head = f"{escape(label)} <small>seed{'s' if len(runs) > 1 else ''} {escape(seeds)}</small>"
    description = escape(str(runs[0].config.get("description") or ""))
    inner = _list(given) if given else '<p class="missing">Nothing differs from the first method.</p>'
    if not given and label == next(iter(methods)):
        inner = ""
    return f'<h3>{head}</h3><p class="note">{description}</p>{inner}'


def _list(given: Mapping[str, str]) -> str:
    items = (f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in given.items())
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
