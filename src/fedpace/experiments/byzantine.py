"""What rules bear: finished runs with and without attackers, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedpace.analysis import Side, TextTable
from fedpace.attacks import Attack
from fedpace.client.evaluation import BATCH
from fedpace.core import Metric, call
from fedpace.data import Shard
from fedpace.engine import task_of
from fedpace.experiments.attack import restored
from fedpace.experiments.config import RunConfig
from fedpace.experiments.parsing import read_config
from fedpace.experiments.run import Result

NOBODY = "no attack"


@dataclass(frozen=True)
class AttackedTraining:
    """A finished run: its aggregation, what attackers did, and what became of the model.

    ``final`` is the metric on the test set, ``worst`` that of the honest client that fares worst on its own examples
    (None where clients were not measured), and ``success`` the share of marked test examples that get the answer which
    the attackers want (None where they want no particular one).
    """

    folder: Path
    label: str
    attack: str
    seed: int
    final: float
    worst: float | None
    success: float | None
    metric: Metric


def read_attacked(folder: str | Path) -> AttackedTraining:
    """What a run folder says; where attackers wanted a particular answer, its model is asked for it."""
    result = Result.read(folder)
    config = read_config({"config": result.config}, str(folder))
    clients = result.records[-1].client_headlines.values()
    worst = None if not clients else min(clients) if result.metric.rises else max(clients)
    return AttackedTraining(
        Path(folder), _label(config), _attack(config), config.seed, result.final, worst, _success(config, Path(folder)),
        result.metric,
    )  # fmt: skip


def _label(config: RunConfig) -> str:
    rule = config.aggregate.rule.registered_name()
    return config.method if rule == "mean" or rule == config.method else f"{config.method}, {rule}"


def _attack(config: RunConfig) -> str:
    return f"{config.attack.registered_name()}, {config.attackers:.0%}" if config.attackers else NOBODY


def _success(config: RunConfig, folder: Path) -> float | None:
    """Of attackers that want a particular answer."""
    if not config.attackers or type(config.attack).goal is Attack.goal:
        return None
    _, federation, module = restored(folder)
    test = federation.test
    wanted = config.attack.goal(test.pool.take(test.indices))
    if wanted is None:
        return None
    shard, task, right = Shard(wanted, np.arange(len(wanted))), task_of(federation, config.task), 0
    with torch.inference_mode():
        for chunk in torch.arange(len(shard)).split(BATCH):  # type: ignore[no-untyped-call]
            inputs, targets = shard.batch(chunk, padding=task.padding)
            right += int((call(module, inputs).argmax(1) == targets).sum())
    return right / len(shard)


def byzantine_tables(runs: Sequence[AttackedTraining]) -> list[TextTable]:
    """Rules × attacks: the metric, the honest client that fares worst, and how often a backdoor opens."""
    shown: dict[str, Callable[[AttackedTraining], float | None]] = {
        f"{runs[0].metric.name} on the test set": lambda run: run.final,
        f"{runs[0].metric.name} of the honest client that fares worst": lambda run: run.worst,
        "Marked examples that get the answer which attackers want": lambda run: run.success,
    }
    tables = []
    for title, value in shown.items():
        cells: dict[tuple[str, str], list[float]] = defaultdict(list)
        for run in runs:
            if (found := value(run)) is not None:
                cells[run.label, run.attack].append(found)
        if cells:
            tables.append(_table(title, cells, runs[0].metric))
    return tables


def _table(title: str, cells: dict[tuple[str, str], list[float]], metric: Metric) -> TextTable:
    rows = list(dict.fromkeys(label for label, _ in cells))
    attacks = sorted(dict.fromkeys(attack for _, attack in cells), key=lambda attack: (attack != NOBODY, attack))
    body = [[label, *(_cell(cells.get((label, attack), []), metric) for attack in attacks)] for label in rows]
    caption = "Mean ± standard deviation over seeds; attackers are left out of what is measured of clients."
    sides: list[Side] = ["left", *["right"] * len(attacks)]  # type: ignore[list-item]
    return TextTable(title, ["method", *attacks], sides, body, caption)


def _cell(values: Sequence[float], metric: Metric) -> str:
    if not values:
        return "–"
    spread = f" ± {metric.text(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return metric.text(float(np.mean(values))) + spread
