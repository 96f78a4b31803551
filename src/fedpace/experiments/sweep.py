"""One method with every combination of some settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError
from fedpace.experiments.batch import Job, plan_jobs
from fedpace.experiments.overrides import joined, parse_value


def sweep_jobs(
    preset: str, grid: Sequence[str], seeds: Sequence[int], overrides: Mapping[str, Any], folder: Path
) -> list[Job]:
    """A job per combination of the ``KEY=V1,V2,…`` texts and per seed."""
    axes = [[(key, value) for value in values] for key, values in map(parse_axis, grid)]
    names = [axis[0][0] for axis in axes]
    if len(set(names)) < len(names):
        raise ConfigError(f"--grid {max(names, key=names.count)}: is given twice; expected each key once")
    if any(key == "seed" for axis in axes for key, _ in axis):
        raise ConfigError("--grid seed: seeds are no axis of a grid; use --seeds")
    points = {", ".join(f"{key}={value}" for key, value in point): dict(point) for point in product(*axes)}
    variants = {label: {"method": preset, **joined(overrides, point)} for label, point in points.items()}
    return plan_jobs(variants, seeds, {}, folder)


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """One axis of a grid.

    >>> parse_axis("anneal.k=3,8")
    ('anneal.k', [3, 8])
    """
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(f"--grid {text}: expected key=value,value,… (for example anneal.k=3,8,16)")
    return key.strip(), [parse_value(value.strip()) for value in values.split(",")]
