"""What differs between the settings of several methods, and which of it makes their comparison unfair."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

Config = Mapping[str, Any]

# What must be equal for a difference to be due to the methods: a name for readers → the keys that decide about it.
_ASPECTS = {
    "weighting": ("aggregate.weights", "aggregate.rule.client_weights"),
    "local work": ("local.epochs", "local.max_steps"),
    "batch size": ("local.batch",),
    "optimizer": ("local.optimizer", "local.momentum", "local.weight_decay"),
    "learning rate": ("local.lr", "local.rate"),
    "precision": ("local.precision",),
    "format on the wire": ("wire",),
    "privacy": ("privacy", "local.private"),
    "rounds": ("rounds",),
    "evaluation": ("measuring.every", "measuring.per_client", "measuring.clients"),
    "data": ("data.source", "data.size", "data.options", "data.partition", "data.shift", "data.augment"),
    "model": ("model",),
    "task": ("task",),
}


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


def unequal(configs: Mapping[str, Config], meant: Collection[str] = ()) -> dict[str, dict[str, str]]:
    """Aspects beside the methods themselves in which their settings differ: aspect → method → its value.

    ``meant`` are keys that somebody set differently on purpose.

    >>> unequal({"a": {"rounds": 5, "local": {"lr": 0.1}}, "b": {"rounds": 9, "local": {"lr": 0.1}}})
    {'rounds': {'a': '5', 'b': '9'}}
    """
    flat = {method: flatten(config) for method, config in configs.items()}
    found = {}
    for aspect, keys in _ASPECTS.items():
        chosen = [key for key in dict.fromkeys(key for config in flat.values() for key in config) if _below(key, keys)]
        varying = [
            key for key in chosen if not _below(key, meant) and len({config.get(key) for config in flat.values()}) > 1
        ]
        if varying:
            found[aspect] = {method: _values(varying, config) for method, config in flat.items()}
    return found


def _below(key: str, tables: Collection[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)


def _values(keys: Collection[str], config: Mapping[str, str]) -> str:
    """Some settings as short as they can be told apart: a name, or the only key, needs no key before it."""
    parts = []
    for key in keys:
        last = key.rpartition(".")[2]
        if key in config:
            parts.append(config[key] if last == "name" or len(keys) == 1 else f"{last} {config[key]}")
    return ", ".join(parts) or "none"


def unfair(configs: Mapping[str, Config], meant: Collection[str] = ()) -> str | None:
    """One line that says what else differs between methods than their names; ``None`` where nothing does.

    >>> unfair({"a": {"rounds": 5}, "b": {"rounds": 9}, "c": {"rounds": 5}})
    'methods differ in more than their names: rounds (a, c: 5; b: 9)'
    """
    parts = [f"{aspect} ({grouped(values)})" for aspect, values in unequal(configs, meant).items()]
    return f"methods differ in more than their names: {', '.join(parts)}" if parts else None


def grouped(values: Mapping[str, str]) -> str:
    """Methods of one value together.

    >>> grouped({"a": "5", "b": "9", "c": "5"})
    'a, c: 5; b: 9'
    """
    methods: dict[str, list[str]] = {}
    for method, value in values.items():
        methods.setdefault(value, []).append(method)
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in methods.items())
