"""What can be named in a config, each with one line about it."""

from __future__ import annotations

import inspect
from typing import Any

from fedpace.aggregation import rules
from fedpace.attacks import attacks
from fedpace.core import Registry
from fedpace.data import augmentations, partitions, shifts, sources
from fedpace.experiments.presets import load_config, preset_names
from fedpace.experiments.reproduction import load_reproduction, reproduction_names
from fedpace.models import models
from fedpace.server import clippings, optimizers
from fedpace.tasks import tasks


def catalogue(kind: str) -> dict[str, str]:
    """Name → description of everything of a kind."""
    if kind in ("methods", "presets"):
        configs = {name: load_config(name) for name in preset_names()}
        chosen = {n: c for n, c in configs.items() if kind == "presets" or c.kind == "method"}
        return {name: config.description for name, config in chosen.items()}
    if kind == "reproductions":
        return {name: load_reproduction(name).title for name in reproduction_names()}
    registries: dict[str, Registry[Any]] = {
        "data": sources,
        "models": models,
        "partitions": partitions,
        "shifts": shifts,
        "augmentations": augmentations,
        "attacks": attacks,
        "clippings": clippings,
        "rules": rules,
        "optimizers": optimizers,
        "tasks": tasks,
    }
    registry = registries[kind]
    return {name: _first_line(registry.get(name)) for name in registry.names()}


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]
