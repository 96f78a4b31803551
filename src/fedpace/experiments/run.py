"""From a config to a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import nn

from fedpace.analysis import Finding, ReportedRun, Summary, diagnose, run_overview, summarise
from fedpace.core import ConfigError, RoundRecord, refuse_links
from fedpace.data import Data, Federation, load
from fedpace.engine import (
    Attackers,
    Executor,
    Listener,
    Plan,
    initial_module,
    read_metric,
    read_rounds,
    read_run,
    task_of,
    train,
)
from fedpace.experiments.config import RunConfig
from fedpace.experiments.tracking import trackers
from fedpace.models import Model as Model
from fedpace.tasks import ACCURACY, Metric, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WRITTEN = (
    ".lock",
    "run.json",
    "rounds.jsonl",
    "checkpoint",
    "clients",
    "model.safetensors",
    "tensorboard",
    "curves.png",
)
"""What a run writes in its folder."""


@dataclass(frozen=True)
class Result:
    """A finished run: its config, one record per round, warnings, where it was written, and the trained module.

    ``metric`` is what it is judged by, accuracy for a classifier. It shows itself as an overview, and with :meth:`plot`
    as a picture.
    """

    config: dict[str, Any]
    records: list[RoundRecord]
    warnings: list[str] = field(default_factory=list)
    folder: Path | None = None
    module: nn.Module | None = None
    metric: Metric = ACCURACY

    @classmethod
    def read(cls, folder: str | Path) -> Result:
        """The result in a run folder (without the module; its weights are in ``model.safetensors``)."""
        run = read_run(Path(folder))
        rounds, warnings = read_rounds(Path(folder)), run.get("warnings", [])
        return cls(run["config"], rounds, warnings, Path(folder), metric=read_metric(run))

    @cached_property
    def summary(self) -> Summary:
        """Final, best and last-ten value of the metric, area under its curve, mean similarity."""
        return summarise(self.records, metric=self.metric)

    @property
    def final(self) -> float:
        """The metric on the test set after the last round."""
        return self.summary.final

    @property
    def accuracy(self) -> float:
        """Final test accuracy, as a fraction."""
        if self.metric.name != "accuracy":
            raise ConfigError(f"this run is not judged by accuracy but by {self.metric.name}: see 'final'")
        return self.summary.final

    def reported(self, label: str | None = None) -> ReportedRun:
        """The run as reports and diagnoses look at it, under the name of its method or another ``label``."""
        names = () if self.folder is None else read_run(self.folder).get("client_names", ())
        return ReportedRun(
            label or self.config["method"],
            self.config["seed"],
            self.config,
            self.records,
            self.warnings,
            self.metric,
            client_names=names,
            folder=self.folder,
        )

    def diagnose(self) -> list[Finding]:
        """What may be wrong with this run, worst first."""
        return diagnose([self.reported()])

    def plot(self, path: str | Path | None = None) -> Figure:
        """The metric and similarity over the rounds."""
        from fedpace.analysis import metric_and_similarity  # here, because matplotlib is slow to import

        return metric_and_similarity(self.records, path, metric=self.metric)

    def _console(self) -> Console:
        console = Console(record=True, width=110, file=StringIO())
        console.print(run_overview({"config": self.config, "warnings": self.warnings}, self.records, self.metric))
        return console

    def __str__(self) -> str:
        return self._console().export_text()

    def _repr_html_(self) -> str:
        return self._console().export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def execute(
    config: RunConfig,
    *,
    data: Data | Federation | None = None,
    model: Model | None = None,
    out: Path | None = None,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
    executor: Executor | None = None,
) -> Result:
    """Run a config. ``data``, ``model`` and ``executor`` replace what it names; ``out`` is the run folder."""
    if config.secure is not None and executor is None:
        raise ConfigError("secure: clients sum updates on Flower's nodes; expected --engine flower-…, found local")
    if out is not None:
        refuse_links(out, WRITTEN)
    module, federation, plan = prepared(config, data, model)
    heard = [*listeners, *trackers(config.track, out)]
    plan = plan if executor is None else replace(plan, executor=executor)
    outcome = train(module, federation, plan, folder=out, resume=resume, listeners=heard)
    described = config.model_dump(mode="json")
    return Result(described, outcome.records, outcome.warnings, out, outcome.module, plan.task.headline)


def prepared(
    config: RunConfig, data: Data | Federation | None = None, model: Model | None = None
) -> tuple[nn.Module, Federation, Plan]:
    """What the engine is given: the model as it is before the first round, the clients, and the plan."""
    federation = federate(config, data)
    plan = replace(config.plan(), task=task_of(federation, config.task), attackers=_attackers(config, federation))
    return initial_model(config, federation, model, plan.task), federation, plan


def federate(config: RunConfig, data: Data | Federation | None = None) -> Federation:
    """The clients of a run: the data that the config names (or ``data``), dealt by its partition, shift and seed.

    Clients that are given are dealt already; augmentations that the config names are applied to them, too, and
    attackers among them train on what they falsified.
    """
    if not isinstance(data, Federation):
        data = data or _load(config.data.source, config.data.size, tuple(config.data.options.items()))
        data = data.partition(config.data.partition, shift=config.data.shift, seed=config.seed)
    data = data.augmented(*config.data.augment) if config.data.augment else data
    attackers = _attackers(config, data)
    return data if attackers is None else attackers.poisoned(data)


def _attackers(config: RunConfig, federation: Federation) -> Attackers | None:
    return Attackers.among(len(federation), config.attackers, config.attack, config.seed)


def initial_model(
    config: RunConfig, federation: Federation, model: Model | None = None, task: Task | None = None
) -> nn.Module:
    """The model of a run (or ``model``) as it is before the first round."""
    chosen = model if model is not None else config.model
    return initial_module(chosen, federation, task or task_of(federation, config.task), config.seed)


@lru_cache(maxsize=2)
def _load(source: str, size: int | None, options: tuple[tuple[str, Any], ...]) -> Data:
    """Loaded once, however many seeds and methods are compared on it."""
    parameters = dict(options)
    for key in {"source", "size"} & parameters.keys():
        raise ConfigError(f"data.options.{key}: expected data.{key} instead")
    return load(source, **parameters, **({} if size is None else {"size": size}))
