"""Attacks on the model of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedpace.analysis import MembershipAttack, TextTable, equal_number, membership_attack
from fedpace.client.evaluation import BATCH
from fedpace.core import ConfigError, FedpaceError, RunFolderError, call, numpy_stream
from fedpace.data import Data, Federation, Shard
from fedpace.engine import RunFolder, read_rounds, read_run, task_of
from fedpace.experiments.config import RunConfig, parse_config
from fedpace.experiments.progress import progress_bars
from fedpace.experiments.run import Model, federate, initial_model
from fedpace.tasks import ACCURACY, Metric, Sums, Task, added


@dataclass(frozen=True)
class AttackedRun:
    """A run, the attack on its model, and the model's metric on the attacked examples: its gap is what leaks."""

    folder: Path
    method: str
    seed: int
    attack: MembershipAttack
    on_members: float
    on_others: float
    metric: Metric = ACCURACY


def attack_membership(
    folder: str | Path,
    *,
    examples: int = 10_000,
    seed: int = 0,
    data: Data | Federation | None = None,
    model: Model | None = None,
    console: Console | None = None,
) -> AttackedRun:
    """Ask a finished run's global model which examples it was trained on (:func:`fedpace.analysis.membership_attack`).

    Members are drawn from the training examples of all clients that took part in a round, others from the test set: at
    most ``examples`` of each, and of both as many as the smaller set has. ``data`` and ``model`` are what the run was
    given in place of what its config names; the weights come from the run folder in any case.
    """
    config, federation, module = restored(Path(folder), data, model)
    task = task_of(federation, config.task)
    trained = {client for record in read_rounds(Path(folder)) for client in record.cohort}
    kinds = ([federation.clients[client] for client in sorted(trained)], [federation.test])
    rng = numpy_stream(seed, "attacked examples")
    try:
        count = equal_number(*(min(examples, sum(map(len, shards))) for shards in kinds))
        with progress_bars(console or Console(stderr=True)) as bars:
            bar = bars.add_task(f"{escape(config.method)} · seed {config.seed}", total=2 * count, note="")
            (members, on_members), (others, on_others) = (
                _answers(module, task, _drawn(shards, count, rng), lambda done: bars.advance(bar, done))
                for shards in kinds
            )
        attack = membership_attack(members, others, seed=seed)
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from None
    return AttackedRun(Path(folder), config.method, config.seed, attack, on_members, on_others, task.headline)


def restored(
    folder: Path, data: Data | Federation | None = None, model: Model | None = None
) -> tuple[RunConfig, Federation, nn.Module]:
    """Config, data and trained model of a finished run, as far as they are what they were."""
    run = read_run(folder)
    config = parse_config(run["config"], str(folder))
    if config.local.personal:
        name = config.local.registered_name()
        raise RunFolderError(f"{folder}: '{name}' gives each client a model of its own: no global model to attack")
    if not RunFolder(folder).complete:
        raise RunFolderError(f"{folder}: expected a finished run, found no model.safetensors; finish it with --resume")
    try:
        federation = federate(config, data)
        module = initial_model(config, federation, model).eval()
    except FedpaceError as error:
        hint = "data or a model that the run was given in Python must be given to attack_membership, too"
        raise type(error)(f"{folder}: {error}; {hint}") from None
    if run.get("data", federation.fingerprint()) != federation.fingerprint():
        raise RunFolderError(f"{folder}: was trained on other data than '{config.data.source}' gives now")
    if config.buffers == "local" and any(True for _ in module.buffers()):
        raise RunFolderError(
            f"{folder}: buffers = 'local' leaves statistics with the clients: no global model to attack"
        )
    _load_weights(module, folder / "model.safetensors")
    return config, federation, module


def _load_weights(module: nn.Module, path: Path) -> None:
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None
    except RuntimeError:  # torch lists every name that is missing or too many
        raise RunFolderError(f"{path}: expected the weights of a {type(module).__name__}, found others") from None


def _answers(
    module: nn.Module, task: Task, drawn: Iterator[tuple[Shard, Tensor]], advance: Callable[[int], None]
) -> tuple[Tensor, float]:
    """What the attacker sees of some examples, a classifier's logits or else losses, and the model's metric on them."""
    seen: list[Tensor] = []
    sums: Sums = {}
    with torch.inference_mode():
        for shard, positions in drawn:
            for chunk in positions.split(BATCH):  # type: ignore[no-untyped-call]
                inputs, targets = shard.batch(chunk, padding=task.padding)
                outputs = call(module, inputs)
                seen.append(outputs if task.classes else _losses(task, outputs, targets))
                sums = added(sums, task.sums(outputs, targets))
                advance(len(chunk))
    return torch.cat(seen), task.measured(sums)[task.headline.name]


def _losses(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each example by itself."""
    each = zip(outputs.split(1), targets.split(1), strict=True)  # type: ignore[no-untyped-call]
    return torch.stack([task.loss(*one) for one in each])[:, None]


def _drawn(shards: Sequence[Shard], count: int, rng: np.random.Generator) -> Iterator[tuple[Shard, Tensor]]:
    """Positions of ``count`` examples, each of all the shards' examples with the same chance."""
    sizes = [len(shard) for shard in shards]
    chosen = np.zeros(sum(sizes), bool)
    chosen[rng.choice(len(chosen), count, replace=False)] = True
    for shard, of_shard in zip(shards, np.split(chosen, np.cumsum(sizes)[:-1]), strict=True):
        if of_shard.any():
            yield shard, torch.from_numpy(np.flatnonzero(of_shard))


def attack_table(runs: Sequence[AttackedRun]) -> TextTable:
    """One row per run."""
    rows = [
        [
            run.method,
            str(run.seed),
            f"{run.attack.accuracy * 100:.2f} ± {run.attack.error * 100:.2f}",
            f"{run.attack.auc:.3f}",
            run.metric.text(run.on_members),
            run.metric.text(run.on_others),
        ]
        for run in runs
    ]
    header = ["method", "seed", "attack (%)", "AUC", "members", "others"]
    caption = (
        "attack: how often it is right whether an example was trained on, ± its standard error; guessing gives 50 %. "
        f"members, others: the model's own {runs[0].metric.name} on training and test examples."
    )
    return TextTable(
        "Membership inference", header, ("left", "right", "right", "right", "right", "right"), rows, caption
    )
