"""Packages whose names are imported when somebody asks for them: who needs no torch does not wait for it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any


def on_first_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` (PEP 562) of a package whose imports stand under ``if TYPE_CHECKING:``.

    They are read from its source, so that its ``__init__.py`` is written like any other: type checkers see ordinary
    imports, and a new name needs an import and its place in ``__all__``. A name must not be that of a module in the
    package, because Python itself enters modules there.
    """
    module = sys.modules[package]
    origins = dict(_imports(inspect.getsource(module)))

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        origin = origins[name]
        found = import_module(f"{package}.{name}") if origin == package else getattr(import_module(origin), name)
        setattr(module, name, found)
        return found

    return get, lambda: list(module.__all__)


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """Name → module of what is imported under ``if TYPE_CHECKING:``."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    for node in (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)):
        yield from ((alias.name, node.module or "") for alias in node.names)
