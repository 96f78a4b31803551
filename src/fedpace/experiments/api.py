"""The library in a script or a notebook: ``load``, ``train``, ``compare``."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpace.aggregation import Rule
from fedpace.analysis import Comparison
from fedpace.core import ConfigError
from fedpace.data import Data, Federation, Loadable, Partition, Partitioned, load
from fedpace.experiments.batch import Job, plan_jobs, run_batch, unfair_jobs
from fedpace.experiments.overrides import joined
from fedpace.experiments.preset_tables import known_preset
from fedpace.experiments.presets import load_config
from fedpace.experiments.progress import RunProgress
from fedpace.experiments.run import Model, Result, execute
from fedpace.experiments.sequential import Sequential, UntilDecided
from fedpace.experiments.tuning import TUNING_SEEDS, tuned_variants, tuning_table
from fedpace.models import ModelConfig
from fedpace.tasks import Task

log = logging.getLogger("fedpace")

DataLike = Loadable | Partitioned | Federation


def train(
    data: DataLike | None = None,
    method: str = "fedavg",
    *,
    model: Model | None = None,
    task: str | Task | Mapping[str, Any] | None = None,
    rule: Rule | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Train one method and return its result.

    ``data`` is a federation, or data to be dealt by the method's partition: anything that :func:`load` takes. By
    default it is what the method names, or "digits". ``method`` is a preset or a TOML file. ``model`` is a name, a
    table (``{"name": "resnet8", "norm": "batch"}``), a module or a factory. ``task`` is a name, a table or your own
    :class:`fedpace.tasks.Task`; by default the targets decide. ``rule`` replaces the aggregation rule, and ``settings``
    any other key of the config (``{"local.lr": 0.01}``).

    >>> result = train("digits", "fedavg", model="linear", rounds=2, settings={"executor": "serial"})
    >>> len(result.records)
    2
    """
    data = _loaded(data)
    config = load_config(method, _settings(data, model, task, rounds, seed, {"aggregate.rule": rule}, settings))
    with RunProgress(Console(stderr=True)) as progress:
        return execute(
            config, data=_given(data), model=_own(model), out=_path(out), resume=resume, listeners=[progress]
        )


def compare(
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]],
    data: DataLike | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    partition: str | Partition | Mapping[str, Any] | None = None,
    model: Model | None = None,
    task: str | Task | Mapping[str, Any] | None = None,
    rounds: int | None = None,
    tune: int | None = None,
    tuning_seeds: Sequence[int] = TUNING_SEEDS,
    until_decided: UntilDecided | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    console: Console | None = None,
) -> Comparison:
    """Train several methods on the same seeds and compare them with paired intervals.

    ``methods`` are presets; a mapping ``{"label": {"method": preset, "key": value, …}}`` compares variants of one. Each
    seed deals the data anew, unless ``data`` is a federation. With ``out`` the runs are kept, and a second call goes on
    where the first one ended. Presets that differ in weighting, local work and the like are named in a warning.

    With ``tune`` each method is tuned first, by so many trials on ``tuning_seeds``; what was chosen is printed. With
    ``until_decided`` seeds are added until each difference is decided; intervals then hold however often one looked.
    """
    variants = (
        methods if isinstance(methods, Mapping) else {name: {"method": name} for name in map(known_preset, methods)}
    )
    if not variants or not seeds:
        raise ConfigError("compare: expected at least one method and one seed")
    data = _loaded(data)
    common = _settings(data, model, task, rounds, None, {"data.partition": partition}, settings)
    console = console or Console(stderr=True)
    given, own = _given(data), _own(model)
    with tempfile.TemporaryDirectory() as nowhere:
        folder = _path(out) or Path(nowhere)
        if tune is not None:
            variants, tuned = tuned_variants(
                variants, tune, tuning_seeds, seeds, common, folder, console, data=given, model=own, workers=workers
            )
            console.print(tuning_table(tuned).rich())
        jobs = plan_jobs(variants, seeds, common, folder)
        warning = unfair_jobs(jobs, meant=(key for variant in variants.values() for key in variant))
        if warning is not None:
            log.warning(warning)
        if until_decided is not None:
            jobs = decided_jobs(
                until_decided, variants, seeds, common, folder, console, given, own, workers, avoid=tuning_seeds
            )
        results = run_batch(jobs, console, data=given, model=own, workers=workers)
    return comparison(jobs, results, sequential=until_decided is not None)


def decided_jobs(
    until: UntilDecided,
    variants: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    common: Mapping[str, Any],
    folder: Path,
    console: Console,
    data: Data | Federation | None = None,
    model: Model | None = None,
    workers: int | None = None,
    avoid: Sequence[int] = (),
) -> list[Job]:
    """Run variants on ``seeds`` and further ones until each differs from the first for certain; their finished jobs."""
    first = next(iter(variants))
    return Sequential(
        until,
        versus=dict.fromkeys(variants, first),
        plan=lambda labels, used: plan_jobs({label: variants[label] for label in labels}, used, common, folder),
        run=lambda jobs: run_batch(jobs, console, data=data, model=model, workers=workers),
        pair=lambda job: job.config.seed,
        value=lambda result: result.summary.final,
        avoid=avoid,
    ).complete(seeds)


def comparison(jobs: Sequence[Job], results: Sequence[Result], *, sequential: bool = False) -> Comparison:
    """Results side by side; the first job's label is the reference."""
    summaries: dict[str, dict[int, Any]] = {}
    records: dict[str, dict[int, Any]] = {}
    for job, result in zip(jobs, results, strict=True):
        summaries.setdefault(job.label, {})[job.config.seed] = result.summary
        records.setdefault(job.label, {})[job.config.seed] = result.records
    return Comparison(summaries, records, sequential=sequential, headline=results[0].metric)


def _settings(
    data: str | Data | Federation | None,
    model: Model | None,
    task: str | Task | Mapping[str, Any] | None,
    rounds: int | None,
    seed: int | None,
    own: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The keys of the config that arguments of a call stand for, and further ``settings``: all must hold together."""
    found = {
        "data.source": data if data is None or isinstance(data, str) else data.name,
        "rounds": rounds,
        "seed": seed,
        "task": task,
        "model": None if model is None else _described(model),
        **own,
    }
    return joined({key: value for key, value in found.items() if value is not None}, settings or {})


def _described(model: Model) -> str | dict[str, Any]:
    """What the config says of a model."""
    if isinstance(model, ModelConfig):
        return model.model_dump()
    if isinstance(model, str):
        return model
    return dict(model) if isinstance(model, Mapping) else getattr(model, "__name__", type(model).__name__)


def _own(model: Model | None) -> Model | None:
    """A module or factory, which no config can hold; anything else is read from the config, where options join it."""
    return None if isinstance(model, str | Mapping | ModelConfig) else model


def _loaded(data: DataLike | None) -> str | Data | Federation | None:
    """Arrays and data sets are loaded; names and paths are left to the run, which caches what it loads."""
    if data is None or isinstance(data, str | Path):
        return data if data is None else str(data)
    return data if isinstance(data, Federation) else load(data)


def _given(data: str | Data | Federation | None) -> Data | Federation | None:
    return None if isinstance(data, str) else data


def _path(out: str | Path | None) -> Path | None:
    return Path(out) if out is not None else None
