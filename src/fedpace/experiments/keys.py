"""Every key of the config: what may be its value, what it is by default, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import signature

from fedpace.core import ConfigError, Named, Settings
from fedpace.experiments.config import RunConfig
from fedpace.experiments.schema_words import about, classes, default, first_line, objects, said, sentences, values
from fedpace.models import ModelConfig, models

MOST = 3  # suggestions


@dataclass(frozen=True)
class Key:
    """What one class says about a key: its values and its default in words, and what it means.

    ``of`` is the object whose parameter it is (``rule 'masked'``), if it depends on that. ``usual`` keys are there
    unless a preset chooses other objects, and without any table of a stage.
    """

    key: str
    values: str
    default: str
    about: str
    of: str
    usual: bool


def explained(key: str) -> list[Key]:
    """What there is to say about a key; of an object's parameter, something for each object that has it.

    >>> [one.default for one in explained("anneal.k")]
    ['8']
    """
    found = _keys().get(key.removesuffix(".name"))
    if found is None:
        raise ConfigError(f"unknown key '{key}'; {_nearest(key)}")
    return found


def below(key: str) -> list[str]:
    """The keys of a table, or of the objects that a key may name, without those of tables within; "" is the config."""
    start = f"{key}." if key else ""
    return [known for known in _keys() if known.startswith(start) and "." not in known[len(start) :]]


def elsewhere(path: list[str]) -> str | None:
    """Where a key that was given at the wrong place may belong, as the tail of a message.

    >>> elsewhere(["lr"]), elsewhere(["nothing"])
    ("did you mean 'local.lr' or 'aggregate.optimizer.lr'?", None)
    """
    *tables, name = path
    start = "".join(f"{table}." for table in tables)
    found = [key for key in _keys() if key.startswith(start) and key.endswith(f".{name}") and key != ".".join(path)]
    usual = [key for key in found if any(one.usual for one in _keys()[key])]
    return _did_you_mean(sorted(usual or found, key=lambda key: key.count("."))[:MOST]) if found else None


def _nearest(key: str) -> str:
    near = get_close_matches(key, _keys(), n=MOST, cutoff=0.6)
    return elsewhere(key.split(".")) or (_did_you_mean(near) if near else f"known: {', '.join(below(''))}")


def _did_you_mean(keys: list[str]) -> str:
    return f"did you mean {' or '.join(map(repr, keys))}?"


@cache
def _keys() -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for one in _walked(RunConfig, "", "", (), usual=True):
        found.setdefault(one.key, []).append(one)
    return found


def _walked(cls: type[Settings], prefix: str, of: str, above: tuple[type, ...], *, usual: bool) -> Iterator[Key]:
    """The keys of a class and of what its values may be; an object within one of its own kind is not entered."""
    for name, field in cls.model_fields.items():
        key, kinds = f"{prefix}{name}", sorted(set(classes(field.annotation)), key=lambda kind: kind.__name__)
        yield Key(key, values(field.annotation, field.metadata), default(field), about(cls, name, kinds), of, usual)
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        for kind in (kind for kind in kinds if kind not in above):
            if kind is ModelConfig:
                yield from _of_models(f"{key}.")
            elif issubclass(kind, Named):
                for label, option in objects(kind).items():
                    there = usual and type(value) is option
                    yield from _walked(option, f"{key}.", f"{name} '{label}'", (*above, kind), usual=there)
            else:
                yield from _walked(kind, f"{key}.", of, (*above, kind), usual=usual and isinstance(value, kind))


def _of_models(prefix: str) -> Iterator[Key]:
    """What a table for a model may hold beside its name: three keys for every model, and the options of each."""
    for name, field in ModelConfig.model_fields.items():
        if name not in ("name", "options"):
            text = about(ModelConfig, name, ())
            yield Key(f"{prefix}{name}", values(field.annotation), default(field), text, "", usual=True)
    for label in models.names():
        factory = models.get(label)
        for name, option in signature(factory, eval_str=True).parameters.items():
            if option.default is not option.empty:
                kinds, text = values(option.annotation), sentences(factory, name) or first_line(factory)
                yield Key(f"{prefix}{name}", kinds, said(option.default), text, f"model '{label}'", usual=True)
