"""Presets and reproductions as files: their names, their texts, their tables. Reading them needs no torch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedpace.core import ConfigError, did_you_mean, same_name


@dataclass(frozen=True)
class TomlFiles:
    """The TOML files of a folder of this package; each is known by its name without suffix."""

    kind: str
    folder: str

    @cache  # noqa: B019  # there are two such folders
    def names(self) -> list[str]:
        """All names, sorted."""
        entries = (entry.name for entry in (files("fedpace.experiments") / self.folder).iterdir())
        return sorted(name.removesuffix(".toml") for name in entries if name.endswith(".toml"))

    def known(self, name: str) -> str:
        """The name as its file spells it; an unknown one is an error that names the nearest one."""
        found = same_name(name, self.names())
        if found is None:
            raise ConfigError(f"unknown {self.kind} '{name}'; {did_you_mean(name, self.names())}")
        return found

    def text(self, name: str) -> str:
        """What is in a file."""
        return (files("fedpace.experiments") / self.folder / f"{self.known(name)}.toml").read_text(encoding="utf-8")


PRESETS = TomlFiles("preset", "presets")
REPRODUCTIONS = TomlFiles("reproduction", "reproductions")


def reproduction_names() -> list[str]:
    """Names of all tables and figures that can be reproduced."""
    return REPRODUCTIONS.names()


def read_reproduction(name: str) -> dict[str, Any]:
    """The table of a file; its keys replace those of the one that it ``extends``, whole or, of some, part by part."""
    table = tomllib.loads(REPRODUCTIONS.text(name))
    parent = table.pop("extends", None)
    if parent is None:
        return table
    below = read_reproduction(parent)
    in_parts = [key for key in ("settings", "factors", "scales") if key in below and key in table]
    return {**below, **table, **{key: {**below[key], **table[key]} for key in in_parts}}
