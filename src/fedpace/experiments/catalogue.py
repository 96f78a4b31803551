"""What can be named in a config, each with one line about it.

The classes of registries are looked up in their source: to import them would mean to wait for torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from fedpace.core import without_markup
from fedpace.experiments.preset_tables import preset_names, read_preset
from fedpace.experiments.toml_files import read_reproduction, reproduction_names

# Where the classes of a registry are, and what the registry is called there.
_REGISTRIES = {
    "data": ("data/sources", "sources"),
    "models": ("models", "models"),
    "partitions": ("data/partitions", "partitions"),
    "shifts": ("data/shifts", "shifts"),
    "augmentations": ("data/augmentations", "augmentations"),
    "attacks": ("attacks", "attacks"),
    "clippings": ("server/clipping", "clippings"),
    "speeds": ("engine", "speeds"),
    "staleness": ("server", "staleness_weights"),
    "rules": ("aggregation", "rules"),
    "optimizers": ("server/optimizers", "optimizers"),
    "tasks": ("tasks", "tasks"),
    "wires": ("wire", "wires"),
}


def catalogue(kind: str) -> dict[str, str]:
    """Name → description of everything of a kind."""
    if kind in ("methods", "presets"):
        tables = {name: read_preset(name) for name in preset_names()}
        chosen = {name: table for name, table in tables.items() if kind == "presets" or table["kind"] == "method"}
        return {name: table["description"] for name, table in chosen.items()}
    if kind == "reproductions":
        return {name: read_reproduction(name)["title"] for name in reproduction_names()}
    folder, registry = _REGISTRIES[kind]
    return dict(sorted(_registered(files("fedpace") / folder, registry)))


def _registered(folder: Traversable, registry: str) -> Iterator[tuple[str, str]]:
    """Name and first line of the docstring of each class below ``@registry.register(name)``."""
    for file in folder.iterdir():
        source = file.read_text(encoding="utf-8") if file.name.endswith(".py") else ""
        if f"@{registry}.register(" not in source:
            continue
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                for name in filter(None, (_name(decorator, registry) for decorator in node.decorator_list)):
                    yield name, without_markup((ast.get_docstring(node) or "").partition("\n")[0])


def _name(decorator: ast.expr, registry: str) -> str | None:
    match decorator:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=found), attr="register"), args=[ast.Constant(value=str(name))]
        ) if found == registry:
            return name
    return None
