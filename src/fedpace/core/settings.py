"""Typed parameters and registries: a thing with a name owns its parameters, and config finds it by that name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from fedpace.core.errors import ConfigError, did_you_mean, same_name
from fedpace.core.text import one_line, shown
from fedpace.core.trust import is_import_path


class Settings(BaseModel):
    """Immutable parameters. An unknown name or a value out of range is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Named(Settings):
    """Settings that a registry knows by name; they are written to config as ``{name = "...", parameter = ...}``."""

    name: ClassVar[str] = ""

    @classmethod
    def registered_name(cls) -> str:
        """The name in the registry, or the import path of a class that the user wrote."""
        return cls.__dict__.get("name", "") or f"{cls.__module__}:{cls.__qualname__}"

    @model_serializer(mode="wrap")
    def _with_name(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"name": self.registered_name(), **handler(self)}


T = TypeVar("T")
N = TypeVar("N", bound=Named)


class Registry(Generic[T]):
    """Name → class. A name with a colon (``package.module:Class``) is imported, so users need not register theirs."""

    def __init__(self, kind: str, base: type) -> None:
        self.kind = kind
        self.base = base
        self._entries: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that enters a class under ``name``."""

        def enter(cls: type[T]) -> type[T]:
            if name in self._entries:
                raise ConfigError(f"{self.kind} '{name}' is registered already")
            cls.name = name  # type: ignore[attr-defined]  # the class learns what config calls it
            self._entries[name] = cls
            return cls

        return enter

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)

    def get(self, name: str) -> type[T]:
        """The class behind ``name``; an unknown name is an error that names the nearest one."""
        if ":" in name:
            found: type[T] = import_path(name, self.kind)
            return found
        return self._entries[self.known(name)]

    def known(self, name: str) -> str:
        """The name as it is registered, if it was spelled with hyphens for underscores or the reverse."""
        found = same_name(name, self._entries)
        if found is None:
            raise ConfigError(f"unknown {self.kind} '{name}'; {did_you_mean(name, self._entries)}")
        return found


def parse(registry: Registry[N], value: Any, default: str | None = None) -> N:
    """Turn config (a name, or a table with ``name`` and parameters) into the object it describes.

    A table without a name describes the ``default``.
    """
    if isinstance(value, registry.base):
        return cast(N, value)  # the user passed the object itself
    table = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    if table is not None and default is not None:
        table.setdefault("name", default)
    if table is None or "name" not in table:
        raise ConfigError(f"{registry.kind}: expected a name or a table with 'name', found {shown(value)}")
    name = str(table.pop("name"))
    cls = registry.get(name)
    if not (isinstance(cls, type) and issubclass(cls, registry.base)):
        raise ConfigError(f"{registry.kind} '{name}': expected a subclass of {registry.base.__name__}, found {cls!r}")
    try:
        return cls(**table)
    except ValidationError as error:
        raise ConfigError(f"{registry.kind} '{cls.registered_name()}': {first_error(cls, error)}") from None


def by_name(registry: Registry[N], default: str | None = None) -> BeforeValidator:
    """Annotation for a field whose value is an object of a registry: config may give its name or its table."""
    return BeforeValidator(lambda value: parse(registry, value, default))


def first_error(cls: type[BaseModel], error: ValidationError) -> str:
    """One line for the first thing that pydantic found wrong, with the nearest valid key where a key is unknown."""
    detail = error.errors()[0]
    path = [str(part) for part in detail["loc"]]
    if detail["type"] == "extra_forbidden":
        return f"unknown key '{'.'.join(path)}'; {did_you_mean(path[-1], _fields_at(cls, path[:-1]))}"
    found = "" if detail["type"] == "missing" else f", found {shown(detail['input'])}"
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{'.'.join(path)}: {message}{found}" if path else message


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields that are valid at ``path`` below ``cls``."""
    for part in path:
        field = cls.model_fields.get(part)
        inner = field.annotation if field else None
        candidates = [inner, *getattr(inner, "__args__", ())]
        cls = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), cls)
    return list(cls.model_fields)


def import_path(path: str, kind: str) -> Any:
    """Import ``package.module:attribute``. Of paths from files, :mod:`fedpace.core.trust` says which come this far.

    As where Python runs a script, modules in the current folder are found, and found first.
    """
    if not is_import_path(path):
        raise ConfigError(f"{kind} '{path}': cannot be imported (expected package.module:Name)")
    module, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module does wrong
        raise ConfigError(f"{kind} '{path}': cannot be imported ({type(error).__name__}: {one_line(error)})") from error
    return found
