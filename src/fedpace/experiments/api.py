"""The library in a script or a notebook: ``load``, ``train``, ``compare``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpace.aggregation import Rule
from fedpace.analysis import Comparison
from fedpace.core import ConfigError
from fedpace.data import Data, Federation, Partition, load
from fedpace.experiments.batch import Job, run_batch
from fedpace.experiments.config import RunConfig
from fedpace.experiments.presets import load_config
from fedpace.experiments.progress import RunProgress
from fedpace.experiments.run import Model, Result, execute


def train(
    data: str | Data | Federation = "digits",
    method: str = "fedavg",
    *,
    model: Model | None = None,
    rule: Rule | None = None,
    rounds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Train one method and return its result.

    ``data`` is a federation, data to be dealt by the method's partition, or the name or path of some. ``method`` is a
    preset or a TOML file. ``model`` is a name, a module or a factory. ``rule`` replaces the aggregation rule, and
    ``settings`` any key of the config (``{"local.lr": 0.01}``).

    >>> result = train("digits", "fedavg", model="linear", rounds=2, settings={"executor": "serial"})
    >>> len(result.records)
    2
    """
    config, given = _config(method, data, model, rule, rounds, {"seed": seed, **(settings or {})})
    with RunProgress(Console(stderr=True)) as progress:
        return execute(config, data=given, model=model, out=_path(out), resume=resume, listeners=[progress])


def compare(
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]],
    data: str | Data | Federation = "digits",
    *,
    seeds: Sequence[int] = (0, 1, 2),
    partition: str | Partition | Mapping[str, Any] | None = None,
    model: Model | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    console: Console | None = None,
) -> Comparison:
    """Train several methods on the same seeds and compare them with paired intervals.

    ``methods`` are presets; a mapping ``{"label": {"method": preset, "key": value, …}}`` compares variants of one. Each
    seed deals the data anew, unless ``data`` is a federation. With ``out`` the runs are kept, and a second call goes on
    where the first one ended.
    """
    variants = methods if isinstance(methods, Mapping) else {name: {"method": name} for name in methods}
    if not variants or not seeds:
        raise ConfigError("compare: expected at least one method and one seed")
    common = dict(settings or {})
    if partition is not None:
        common["data.partition"] = partition
    with tempfile.TemporaryDirectory() as nowhere:
        folder = _path(out) or Path(nowhere)
        jobs, given = [], None
        for (label, variant), seed in product(variants.items(), seeds):
            overrides = {**common, **{k: v for k, v in variant.items() if k != "method"}, "seed": seed}
            config, given = _config(str(variant.get("method", label)), data, model, None, rounds, overrides)
            jobs.append(Job(label, config, folder / f"{slug(label)}-seed{seed}"))
        results = run_batch(jobs, console or Console(stderr=True), data=given, model=model, workers=workers)
    return comparison(jobs, results)


def comparison(jobs: Sequence[Job], results: Sequence[Result]) -> Comparison:
    """Results side by side; the first job's label is the reference."""
    summaries: dict[str, dict[int, Any]] = {}
    records: dict[str, dict[int, Any]] = {}
    for job, result in zip(jobs, results, strict=True):
        summaries.setdefault(job.label, {})[job.config.seed] = result.summary
        records.setdefault(job.label, {})[job.config.seed] = result.records
    return Comparison(summaries, records)


def slug(label: str) -> str:
    """A label as a file name.

    >>> slug("anneal.k=8, beta=0.3")
    'anneal.k=8-beta=0.3'
    """
    return re.sub(r"[^\w.=+-]+", "-", label).strip("-")


def _config(
    method: str,
    data: str | Data | Federation,
    model: Model | None,
    rule: Rule | None,
    rounds: int | None,
    overrides: Mapping[str, Any],
) -> tuple[RunConfig, Data | Federation | None]:
    """The config of a call, and the data if it was given as an object."""
    changed = dict(overrides)
    if isinstance(data, Path):
        data = str(data)
    if not isinstance(data, str | Data | Federation):
        data = load(data)
    changed["data.source"] = data if isinstance(data, str) else data.name
    if rule is not None:
        changed["aggregate.rule"] = rule
    if rounds is not None:
        changed["rounds"] = rounds
    if model is not None:
        changed["model"] = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    return load_config(method, changed), None if isinstance(data, str) else data


def _path(out: str | Path | None) -> Path | None:
    return Path(out) if out is not None else None
