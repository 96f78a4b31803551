"""Presets: methods and ablations as TOML files, and the overrides that turn one into another run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError, did_you_mean, refuse_import_paths
from fedpace.experiments.config import RunConfig, parse_config

_FOLDER = files("fedpace.experiments") / "presets"


def preset_names() -> list[str]:
    """Names of the presets that come with the library."""
    return sorted(entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def load_config(preset: str | Path, *layers: Mapping[str, Any]) -> RunConfig:
    """The config of a preset (a name, or the path of a TOML file) with ``{"dotted.key": value}`` overrides.

    Of several layers of overrides the later ones win. Within one, all must hold together: none is lost. What a file
    may not do is in :mod:`fedpace.core.trust`. Another number of rounds moves the windows of the preset's stages along,
    unless a window is overridden, too.

    >>> load_config("gma", {"aggregate.rule.tau": 0.5}).aggregate.rule.tau
    0.5
    >>> load_config("fedpace-paper", {"rounds": 25}).dampen.first
    10
    """
    table = _read(str(preset))
    own_rounds = table.get("rounds", RunConfig().rounds)
    for overrides in layers:
        table = _merge(table, nested(overrides))
    config = parse_config(table, str(preset))
    changed = {key for overrides in layers for key in overrides}
    if "rounds" not in changed or any(map(_is_window, changed)):
        return config
    return parse_config({**table, "rounds": own_rounds}, str(preset)).shortened(config.rounds)


def _is_window(key: str) -> bool:
    """Whether a key says when something happens."""
    return key.endswith((".first", ".last", ".joins")) or key in ("anneal", "dampen", "prune", "freeze", "cohort")


def _read(preset: str, extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    """A preset's table, merged over those that it extends."""
    if preset in extended_by:
        raise ConfigError(f"{extended_by[0]}: extends itself ({' -> '.join((*extended_by, preset))})")
    if preset.endswith(".toml"):
        text, method = _read_file(Path(preset)), Path(preset).stem
    elif preset in preset_names():
        text, method = (_FOLDER / f"{preset}.toml").read_text(), preset
    else:
        raise ConfigError(f"unknown preset '{preset}'; {did_you_mean(preset, preset_names())}")
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # TOML's own kind among them, and numbers of too many digits
        raise ConfigError(f"{preset}: not valid TOML ({error})") from None
    except RecursionError:
        raise ConfigError(f"{preset}: not valid TOML (too many brackets within one another)") from None
    refuse_import_paths(table, preset)
    parent = table.pop("extends", None)
    if parent is not None and str(parent).endswith(".toml"):
        parent = Path(preset).parent / parent  # beside the file that names it
    merged = _merge(_read(str(parent), (*extended_by, preset)), table) if parent is not None else table
    return {**merged, "method": table.get("method", method), "kind": table.get("kind", "method")}


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: preset cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML (expected UTF-8, {error.reason} at byte {error.start})") from None


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, except where ``above`` names another object (``name = ...``)."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, dict):
            old = {"name": old}  # an object that was given by its name alone keeps it, and the parameter is added
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and value.get("name", old.get("name")) == old.get("name"):
            merged[key] = _merge(old, value)
    return merged


def nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as one table of tables, in whatever order they are; two that contradict one another are an error.

    >>> nested({"local.lr": 0.1, "data.partition.clients": 5, "data.partition": "iid"})
    {'local': {'lr': 0.1}, 'data': {'partition': {'clients': 5, 'name': 'iid'}}}
    """
    table: dict[str, Any] = {}
    for key, value in overrides.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        table = _united("", table, value)
    return table


def _united(key: str, one: Any, other: Any) -> Any:
    """Both values of a key as one: what only one of two tables has, and what both say alike."""
    if isinstance(one, Mapping) != isinstance(other, Mapping):  # an object by its name, and parameters of it
        one, other = ({"name": value} if isinstance(value, str) else value for value in (one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {part: _united(f"{key}.{part}", one[part], other[part]) for part in one if part in other}
        return {**one, **other, **both}
    if one != other:
        raise ConfigError(f"{key.lstrip('.')}: given twice, as {one!r} and as {other!r}; expected one of them")
    return one


def joined(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides put together; a key that has several values is an error.

    >>> joined({"rounds": 5}, {"seed": 1})
    {'rounds': 5, 'seed': 1}
    """
    found: dict[str, Any] = {}
    for overrides in given:
        for key, value in overrides.items():
            found[key] = _united(key, found[key], value) if key in found else value
    return found


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """``key=value`` texts as a table; values are TOML, and anything else is a string.

    >>> parse_overrides(["rounds=5", "data.source=cifar10", "anneal.enabled=false"])
    {'rounds': 5, 'data.source': 'cifar10', 'anneal.enabled': False}
    """
    return joined(*map(_parsed, assignments))


def _parsed(assignment: str) -> dict[str, Any]:
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {assignment}: expected key=value")
    return {key.strip(): parse_value(text.strip())}


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
