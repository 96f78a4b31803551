"""What is set on top of a preset: dotted keys, and tables that are merged."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from fedpace.core import ConfigError, same_name, shown


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, except where ``above`` names another object (``name = ...``)."""
    found = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, str) and isinstance(value, dict):
            old = {"name": old}  # an object that was given by its name alone keeps it, and the parameter is added
        found[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and _same_object(old, value):
            found[key] = merged(old, value)
    return found


def _same_object(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    return "name" not in above or same_name(str(above["name"]), [str(below.get("name"))]) is not None


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
        raise ConfigError(
            f"{key.lstrip('.')}: given twice, as {shown(one)} and as {shown(other)}; expected one of them"
        )
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
