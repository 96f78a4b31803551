"""Many runs side by side: one process per core, each doing a whole run by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpace.analysis import unfair
from fedpace.core import ConfigError, FedpaceError, RoundRecord, RunFolderError, slug
from fedpace.data import Data, Federation
from fedpace.engine import RunFolder, check_device, read_rounds
from fedpace.engine.executors import cores
from fedpace.experiments.config import RunConfig, upgraded
from fedpace.experiments.parallel import Work, forks, named, side_by_side
from fedpace.experiments.presets import load_config
from fedpace.experiments.progress import BatchProgress
from fedpace.experiments.run import Model, Result, execute, federate, initial_model


@dataclass(frozen=True)
class Job:
    """One run of a batch: its label in tables, its config, and the folder it is written to."""

    label: str
    config: RunConfig
    folder: Path

    @property
    def complete(self) -> bool:
        """Whether an earlier batch finished this run."""
        return RunFolder(self.folder).complete


def plan_jobs(
    variants: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], common: Mapping[str, Any], folder: Path
) -> list[Job]:
    """A job per variant and seed. A variant is ``{"method": preset, "dotted.key": value, …}`` under its label."""
    jobs = []
    for settings in (common, *variants.values()):
        if "seed" in settings:
            raise ConfigError(f"seed = {settings['seed']}: the seeds of a comparison are a list; use --seeds")
    for (label, variant), seed in product(variants.items(), dict.fromkeys(seeds)):
        changes = {key: value for key, value in variant.items() if key != "method"}
        config = load_config(variant.get("method", label), common, changes, {"seed": seed})
        jobs.append(Job(label, config, folder / f"{slug(label)}-seed{seed}"))
    return jobs


def unfair_jobs(jobs: Sequence[Job], meant: Iterable[str] = ()) -> str | None:
    """One line about what else differs between the jobs' methods than their names, but for the keys ``meant`` to."""
    return unfair({job.label: job.config.model_dump(mode="json") for job in jobs}, frozenset(meant))


def run_batch(
    jobs: Sequence[Job],
    console: Console,
    *,
    data: Data | Federation | None = None,
    model: Model | None = None,
    workers: int | None = None,
) -> list[Result]:
    """Run all jobs and return their results in order. What is on disk already is resumed or taken as it is.

    Whole runs in parallel keep every core busy even where a round has fewer clients than cores; results do not depend
    on it. The data is loaded once, before processes fork.
    """
    check_jobs(jobs, data, model)
    todo = [job for job in jobs if not job.complete]
    with BatchProgress(console, {job.folder: (_title(job), job.config.rounds) for job in jobs}) as progress:
        for job in jobs:
            progress.show(job.folder, _records_so_far(job.folder))
        for folders in _run_all(todo, data, model, at_once(jobs, workers)):
            for folder in folders:
                progress.show(folder, _records_so_far(folder))
    return [Result.read(job.folder) for job in jobs]


def check_jobs(jobs: Sequence[Job], data: Data | Federation | None, model: Model | None) -> None:
    """A mistake in data, model, schedule or folder shows before hours of training."""
    folders: dict[Path, Job] = {}
    for job in jobs:
        if folders.setdefault(job.folder, job).config != job.config:
            raise FedpaceError(f"{_title(job)}: two methods of this name; give one of them another 'method'")
        with named(_title(job)):
            federation = federate(job.config, data)
            plan = job.config.plan()
            plan.schedule.validate_for(plan.rounds, plan.in_a_round(len(federation)))
            initial_model(job.config, federation, model)
            check_device(job.config.local, job.config.device)
            if (job.folder / "run.json").exists():
                description = {"config": job.config.model_dump(mode="json"), "data": federation.fingerprint()}
                RunFolder(job.folder).check(description, upgraded)


def at_once(jobs: Sequence[Job], workers: int | None) -> int:
    """How many runs go side by side: one per core, or all of them in turn where one needs a GPU.

    A run takes all of a GPU's memory that it wants, and what is forked from a process that knows CUDA cannot use it.
    """
    elsewhere = next((job.config.device for job in jobs if job.config.device != "cpu"), None)
    if elsewhere is None:
        return workers or cores()
    if workers not in (None, 1):
        raise ConfigError(f"workers: expected 1, because runs on '{elsewhere}' go one after another, found {workers}")
    return 1


def on_one_core(config: RunConfig) -> RunConfig:
    """The same run beside others."""
    return config.model_copy(update={"executor": config.executor.on_one_core()})


def _title(job: Job) -> str:
    return f"{job.label} · seed {job.config.seed}"


def _records_so_far(folder: Path) -> list[RoundRecord]:
    with suppress(RunFolderError):
        return read_rounds(folder)
    return []


def _run_all(
    jobs: Sequence[Job], data: Data | Federation | None, model: Model | None, workers: int
) -> Iterator[list[Path]]:
    """Run jobs, ``workers`` at a time; yields now and then the folders in which something may have happened."""
    works = {}
    for job in jobs:
        config = on_one_core(job.config) if forks(workers) else job.config
        run = partial(execute, config, data=data, model=model, out=job.folder, resume=True)
        works[job.folder] = Work(_title(job), run)
    return side_by_side(works, workers)
