"""Presets: methods and ablations as TOML files, and the overrides that turn one into another run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError, did_you_mean
from fedpace.experiments.config import RunConfig, parse_config

_FOLDER = files("fedpace.experiments") / "presets"


def preset_names() -> list[str]:
    """Names of the presets that come with the library."""
    return sorted(entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def load_config(preset: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The config of a preset (a name, or the path of a TOML file) with ``{"dotted.key": value}`` overrides.

    Another number of rounds moves the windows of the preset's stages along, unless a window is overridden, too.

    >>> load_config("gma", {"aggregate.rule.tau": 0.5}).aggregate.rule.tau
    0.5
    >>> load_config("fedpace-paper", {"rounds": 25}).dampen.first
    10
    """
    overrides = overrides or {}
    table = _read(str(preset))
    own_rounds = table.get("rounds", RunConfig().rounds)
    for key, value in overrides.items():
        table = _merge(table, _nested(key, value))
    config = parse_config(table, str(preset))
    if "rounds" not in overrides or any(map(_is_window, overrides)):
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
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{preset}: not valid TOML ({error})") from None
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


def _nested(key: str, value: Any) -> dict[str, Any]:
    """A dotted key as nested tables.

    >>> _nested("local.lr", 0.1)
    {'local': {'lr': 0.1}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    table: dict[str, Any] = value
    return table


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """``key=value`` texts as a table; values are TOML, and anything else is a string.

    >>> parse_overrides(["rounds=5", "data.source=cifar10", "anneal.enabled=false"])
    {'rounds': 5, 'data.source': 'cifar10', 'anneal.enabled': False}
    """
    found = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {assignment}: expected key=value")
        found[key.strip()] = parse_value(text.strip())
    return found


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
