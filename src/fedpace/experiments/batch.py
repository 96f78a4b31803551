"""Many runs side by side: one process per core, each doing a whole run by itself."""

from __future__ import annotations

import logging
import multiprocessing as mp
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from fedpace.core import FedpaceError, RunFolderError
from fedpace.data import Data, Federation
from fedpace.engine import RunFolder, Serial, read_rounds
from fedpace.engine.executors import can_fork, cores
from fedpace.experiments.config import RunConfig, upgraded
from fedpace.experiments.presets import load_config
from fedpace.experiments.progress import BatchProgress
from fedpace.experiments.run import Model, Result, execute, federate
from fedpace.models import build

POLL = 0.2  # seconds between two looks at the running folders


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
    for (label, variant), seed in product(variants.items(), dict.fromkeys(seeds)):
        changes = {key: value for key, value in variant.items() if key != "method"}
        config = load_config(variant.get("method", label), {**common, **changes, "seed": seed})
        jobs.append(Job(label, config, folder / f"{slug(label)}-seed{seed}"))
    return jobs


def slug(label: str) -> str:
    """A label as a file name.

    >>> slug("anneal.k=8, beta=0.3")
    'anneal.k=8-beta=0.3'
    """
    return re.sub(r"[^\w.=+-]+", "-", label).strip("-")


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
    _check(jobs, data, model)
    todo = [job for job in jobs if not job.complete]
    with BatchProgress(console, {job.folder: (_title(job), job.config.rounds) for job in jobs}) as progress:
        for job in jobs:
            progress.show(job.folder, _records_so_far(job.folder))
        for folders in _run_all(todo, data, model, workers or cores()):
            for folder in folders:
                progress.show(folder, _records_so_far(folder))
    return [Result.read(job.folder) for job in jobs]


def _check(jobs: Sequence[Job], data: Data | Federation | None, model: Model | None) -> None:
    """A mistake in data, model, schedule or folder shows before hours of training."""
    folders: dict[Path, Job] = {}
    for job in jobs:
        if folders.setdefault(job.folder, job).config != job.config:
            raise FedpaceError(f"{_title(job)}: two methods of this name; give one of them another 'method'")
        with _named(job):
            federation = federate(job.config, data)
            job.config.schedule().validate_for(job.config.rounds, job.config.cohort.size(len(federation)))
            chosen = model if model is not None else job.config.model
            build(chosen, federation.shape, len(federation.classes), job.config.seed)
            if (job.folder / "run.json").exists():
                description = {"config": job.config.model_dump(mode="json"), "data": federation.fingerprint()}
                RunFolder(job.folder).resume(description, upgraded)


@contextmanager
def _named(job: Job) -> Iterator[None]:
    """An error within names the run and keeps its kind."""
    try:
        yield
    except FedpaceError as error:
        raise type(error)(f"{_title(job)}: {error}") from None


def _title(job: Job) -> str:
    return f"{job.label} · seed {job.config.seed}"


def _records_so_far(folder: Path) -> list[dict[str, Any]]:
    with suppress(RunFolderError):
        return read_rounds(folder)
    return []


def _run_all(
    jobs: Sequence[Job], data: Data | Federation | None, model: Model | None, workers: int
) -> Iterator[list[Path]]:
    """Run jobs, ``workers`` at a time; yields now and then the folders in which something may have happened."""
    if workers == 1 or not can_fork():
        for job in jobs:
            with _named(job):
                execute(job.config, data=data, model=model, out=job.folder, resume=True)
            yield [job.folder]
        return
    waiting = list(reversed(jobs))
    running: dict[Path, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                running[job.folder] = _Running(job, data, model)
            time.sleep(POLL)
            yield list(running)
            for folder in [folder for folder, child in running.items() if child.finished()]:
                del running[folder]
                yield [folder]
    finally:
        for child in running.values():
            child.stop()


class _Running:
    """A run in a process of its own. Forked, so that neither data nor a user's model is pickled."""

    def __init__(self, job: Job, data: Data | Federation | None, model: Model | None) -> None:
        context: Any = mp.get_context("fork")
        self._job = job
        self._errors, theirs = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_child, args=(job, data, model, theirs))
        self._process.start()
        theirs.close()

    def finished(self) -> bool:
        """Whether the run is over; raises what went wrong in it."""
        if self._process.is_alive():
            return False
        self._process.join()
        if self._process.exitcode:
            with suppress(EOFError):
                raise FedpaceError(f"{_title(self._job)}: {self._errors.recv()}")
            raise FedpaceError(f"{_title(self._job)}: its process ended with exit code {self._process.exitcode}")
        return True

    def stop(self) -> None:
        """End the run; it can be resumed."""
        self._process.terminate()
        self._process.join()


def _child(job: Job, data: Data | Federation | None, model: Model | None, errors: Any) -> None:
    torch.set_num_threads(1)  # first of all: a forked process hangs if it uses the thread pool that its parent started
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business: it ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.getLogger("fedpace").setLevel(logging.ERROR)  # warnings are in run.json; several runs would mix them up
    config = job.config.model_copy(update={"executor": Serial()})
    try:
        execute(config, data=data, model=model, out=job.folder, resume=True)
    except FedpaceError as error:
        errors.send(str(error))
        raise SystemExit(2) from None
