"""From a config to a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from torch import nn

from fedpace.analysis import Summary, accuracy_and_similarity, run_overview, summarise
from fedpace.core import ConfigError
from fedpace.data import Data, Federation, kind_of_targets, load
from fedpace.engine import Executor, Listener, Record, read_rounds, read_run, train
from fedpace.experiments.config import RunConfig
from fedpace.experiments.tracking import trackers
from fedpace.models import Model as Model
from fedpace.models import build


@dataclass(frozen=True)
class Result:
    """A finished run: its config, one record per round, warnings, where it was written, and the trained module.

    It shows itself as an overview, and with :meth:`plot` as a picture.
    """

    config: dict[str, Any]
    records: list[Record]
    warnings: list[str] = field(default_factory=list)
    folder: Path | None = None
    module: nn.Module | None = None

    @classmethod
    def read(cls, folder: str | Path) -> Result:
        """The result in a run folder (without the module; its weights are in ``model.safetensors``)."""
        run = read_run(Path(folder))
        return cls(run["config"], read_rounds(Path(folder)), run.get("warnings", []), Path(folder))

    @cached_property
    def summary(self) -> Summary:
        """Final, best and last-ten accuracy, area under the curve, mean similarity."""
        return summarise(self.records)

    @property
    def accuracy(self) -> float:
        """Final test accuracy, as a fraction."""
        return self.summary.final

    def plot(self, path: str | Path | None = None) -> Figure:
        """Accuracy and similarity over the rounds."""
        return accuracy_and_similarity(self.records, path)

    def _console(self) -> Console:
        console = Console(record=True, width=110, file=StringIO())
        console.print(run_overview({"config": self.config, "warnings": self.warnings}, self.records))
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
    federation = federate(config, data)
    module = initial_model(config, federation, model)
    heard = [*listeners, *trackers(config.track, out)]
    plan = config.plan() if executor is None else replace(config.plan(), executor=executor)
    outcome = train(module, federation, plan, folder=out, resume=resume, listeners=heard)
    return Result(config.model_dump(mode="json"), outcome.records, outcome.warnings, out, outcome.module)


def federate(config: RunConfig, data: Data | Federation | None = None) -> Federation:
    """The clients of a run: the data that the config names (or ``data``), dealt by its partition, shift and seed."""
    if isinstance(data, Federation):
        return data
    data = data or _load(config.data.source, config.data.size, tuple(config.data.options.items()))
    return data.partition(config.data.partition, shift=config.data.shift, seed=config.seed)


def initial_model(config: RunConfig, federation: Federation, model: Model | None = None) -> nn.Module:
    """The model of a run (or ``model``) as it is before the first round."""
    if not federation.classes:
        raise ConfigError(
            f"{federation.name}: expected classes to learn, found {kind_of_targets(federation.test.dataset)}"
        )
    chosen = model if model is not None else config.model
    return build(chosen, federation.shape, len(federation.classes), config.seed)


@lru_cache(maxsize=2)
def _load(source: str, size: int | None, options: tuple[tuple[str, Any], ...]) -> Data:
    """Loaded once, however many seeds and methods are compared on it."""
    return load(source, **dict(options), **({} if size is None else {"size": size}))
