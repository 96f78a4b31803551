"""The schema of settings in words: which values a field takes, its default, and what docstrings say of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from fedpace.core import Named, Settings, shown, without_markup
from fedpace.models import ModelConfig, models

_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", NoneType: "not set"}
_UNSET = " or not set"
_LIMITS = {Gt: ("gt", "above"), Ge: ("ge", "at least"), Lt: ("lt", "below"), Le: ("le", "at most")}


def classes(annotation: Any) -> Iterator[type[Settings]]:
    """The classes of settings of which a value may be."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for inner in get_args(annotation):
        yield from classes(inner)


def objects(kind: type[Named]) -> dict[str, type[Named]]:
    """The registered classes of a kind, by name.

    >>> from fedpace.data import Shift
    >>> list(objects(Shift))
    ['coloured', 'rotated']
    """
    found = {kind.name: kind} if kind.__dict__.get("name") else {}
    for child in kind.__subclasses__():
        found |= objects(child)
    return dict(sorted(found.items()))


def values(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Which values are allowed.

    >>> from pydantic import Field
    >>> values(Annotated[float, Field(gt=0)] | None)
    'a number above 0 or not set'
    """
    words = _kinds(annotation)
    limits = "".join(map(_limit, metadata))
    return words.removesuffix(_UNSET) + limits + _UNSET if words.endswith(_UNSET) else words + limits


def _limit(found: Any) -> str:
    if isinstance(found, FieldInfo):
        return "".join(map(_limit, found.metadata))
    limits = (f" {words} {getattr(found, name)}" for kind, (name, words) in _LIMITS.items() if isinstance(found, kind))
    return next(limits, "")


def _kinds(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values(inner[0], inner[1:])
    if ModelConfig in inner:
        return f"{', '.join(models.names())}, package.module:factory, or a table with 'name' and options"
    if origin in (Union, UnionType):
        return " or ".join(sorted(map(values, inner), key=lambda words: words == _WORDS[NoneType]))
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin is tuple:
        return f"a list of {values(inner[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Named):
        return f"{', '.join(objects(annotation))}, or a table with 'name' and parameters"
    return _WORDS.get(annotation, "a path" if annotation is Path else "a table")


def default(field: FieldInfo) -> str:
    """The default of a field."""
    if field.is_required():
        return "none: it has to be given"
    return said(field.get_default(call_default_factory=True))


def said(value: Any) -> str:
    """A value as TOML has it, or nearly so.

    >>> said(True), said(None), said(("a", "b"))
    ('true', 'not set', 'a, b')
    """
    if isinstance(value, Named):
        return value.registered_name()
    if isinstance(value, Settings):
        return "a table with its own defaults"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | Mapping):
        return ", ".join(map(str, value)) or "empty"
    return _WORDS[NoneType] if value is None else value or "empty" if isinstance(value, str) else shown(value)


def about(cls: type[Settings], name: str, kinds: Sequence[type[Settings]]) -> str:
    """The sentences about a field of a class; without any, what the ``kinds`` of its value are, or else the class."""
    for owner in cls.__mro__:
        if issubclass(owner, Settings) and (found := sentences(owner, name)):
            return found
    return " ".join(map(first_line, kinds or [cls]))


def sentences(thing: object, name: str) -> str:
    """The sentences of a docstring that name a parameter."""
    text = " ".join(_doc(thing).partition(">>>")[0].split()).replace("Parameters: ", "")
    parts = re.split(r"(?<=[.;])\s+(?=[A-Z`])", text)
    found = " ".join(without_markup(part) for part in parts if f"``{name}``" in part)
    return f"{found.rstrip('.;')}." if found else ""


def first_line(thing: object) -> str:
    """What a docstring says first."""
    return without_markup(_doc(thing).partition("\n")[0])


def _doc(thing: object) -> str:
    return cleandoc(thing.__doc__ or "")
