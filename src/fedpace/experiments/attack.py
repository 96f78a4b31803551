"""Attacks on the model of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fedpace.analysis import (
    Adversary,
    Evidence,
    MembershipAttack,
    Side,
    TextTable,
    adversaries,
    attacked,
    equal_number,
)
from fedpace.client.evaluation import BATCH
from fedpace.core import ConfigError, FedpaceError, RunFolderError, call, for_terminal, numpy_stream, parse
from fedpace.data import Data, Federation, Shard
from fedpace.engine import RunFolder, read_model, read_rounds, read_run, task_of
from fedpace.experiments.config import RunConfig
from fedpace.experiments.parsing import read_config
from fedpace.experiments.progress import progress_bars
from fedpace.experiments.run import Model, federate, initial_model
from fedpace.experiments.shadows import Drawn, train_shadows
from fedpace.tasks import ACCURACY, Metric, Sums, Task, added


@dataclass(frozen=True)
class AttackedRun:
    """A run, the attack on its model, and the model's metric on the attacked examples: its gap is what leaks.

    ``by`` is the name of the attack.
    """

    folder: Path
    method: str
    seed: int
    attack: MembershipAttack
    on_members: float
    on_others: float
    metric: Metric = ACCURACY
    by: str = "logits"


def chosen_adversaries(names: Sequence[str], shadows: int | None) -> list[Adversary]:
    """Attacks by name; those that train ``shadows`` are told how many."""
    classes = {name: adversaries.get(name) for name in names}
    shadowing = [name for name, cls in classes.items() if "shadows" in cls.model_fields]
    if shadows is not None and not shadowing:
        raise ConfigError(f"shadows: expected an attack that trains some (lira), found {', '.join(names)}")
    return [
        parse(
            adversaries, {"name": name, **({"shadows": shadows} if name in shadowing and shadows is not None else {})}
        )
        for name in names
    ]


def attack_membership(
    folder: str | Path,
    *,
    by: str | Adversary = "logits",
    examples: int = 10_000,
    seed: int = 0,
    data: Data | Federation | None = None,
    model: Model | None = None,
    console: Console | None = None,
) -> AttackedRun:
    """Ask a finished run's global model which examples it was trained on; ``by`` is one of the membership attacks.

    Members are drawn from the training examples of all clients that took part in a round, others from the test set: at
    most ``examples`` of each, and of both as many as the smaller set has. ``data`` and ``model`` are what the run was
    given in place of what its config names; the weights come from the run folder in any case.
    """
    adversary = parse(adversaries, by)
    config, federation, module = restored(Path(folder), data, model)
    task = task_of(federation, config.task)
    took_part = sorted({client for record in read_rounds(Path(folder)) for client in record.cohort})
    kinds = ([federation.clients[client] for client in took_part], [federation.test])
    rng = numpy_stream(seed, "attacked examples")
    try:
        unfit = adversary.unfit_for(task)
        if unfit is not None:
            raise ConfigError(f"membership attack {unfit}, found task '{task.registered_name()}'")
        count = equal_number(*(min(examples, sum(map(len, shards))) for shards in kinds))
        drawn = [list(_drawn(shards, count, rng)) for shards in kinds]
        with progress_bars(console or Console(stderr=True)) as bars:
            bar = bars.add_task(f"{for_terminal(config.method)} · seed {config.seed}", total=2 * count, note="")
            told = [_told(module, task, kind, lambda done: bars.advance(bar, done)) for kind in drawn]
        both = drawn[0] + drawn[1]
        models = train_shadows(config, federation, both, adversary.models, seed=seed, model=model)
        shadows = [(_told(shadow.module, task, both).confidences, shadow.inside) for shadow in models]
        evidence = [_evidence(one, shadows, np.s_[at : at + count]) for one, at in zip(told, (0, count), strict=True)]
        attack = attacked(adversary, *evidence, seed=seed)
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from None
    return AttackedRun(
        Path(folder),
        config.method,
        config.seed,
        attack,
        on_members=told[0].metric,
        on_others=told[1].metric,
        metric=task.headline,
        by=adversary.registered_name(),
    )


def restored(
    folder: Path, data: Data | Federation | None = None, model: Model | None = None
) -> tuple[RunConfig, Federation, nn.Module]:
    """Config, data and trained model of a finished run, as far as they are what they were."""
    run = read_run(folder)
    config = read_config(run, str(folder))
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
    _load_weights(module, folder)
    return config, federation, module


def _load_weights(module: nn.Module, folder: Path) -> None:
    path = folder / "model.safetensors"
    try:
        module.load_state_dict(load(read_model(folder)))
    except SafetensorError as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None
    except RuntimeError:  # torch lists every name that is missing or too many
        raise RunFolderError(f"{path}: expected the weights of a {type(module).__name__}, found others") from None


@dataclass(frozen=True)
class _Told:
    """What a model says of some examples, and its metric on them."""

    outputs: NDArray[np.float64]
    losses: NDArray[np.float64]
    confidences: NDArray[np.float64]
    metric: float


def _told(module: nn.Module, task: Task, drawn: Drawn, advance: Callable[[int], None] = lambda done: None) -> _Told:
    """What the model says of the ``drawn`` examples, in their order."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    sums: Sums = {}
    with torch.inference_mode():
        for shard, positions in drawn:
            for chunk in positions.split(BATCH):  # type: ignore[no-untyped-call]
                inputs, targets = shard.batch(chunk, padding=task.padding)
                outputs = call(module, inputs)
                losses = _losses(task, outputs, targets)
                if task.classes:
                    seen.append((outputs, losses, _confidences(outputs, targets)))
                else:
                    seen.append((losses[:, None], losses, -losses))
                sums = added(sums, task.sums(outputs, targets))
                advance(len(chunk))
    shown, each, sure = (torch.cat(column).double().numpy() for column in zip(*seen, strict=True))
    return _Told(shown, each, sure, task.measured(sums)[task.headline.name])


def _evidence(told: _Told, shadows: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]], part: slice) -> Evidence:
    """What the attacker sees: the model's answers, and those of the shadows to this ``part`` of all questions."""
    if not shadows:
        return Evidence(told.outputs, told.losses, told.confidences)
    answers, inside = (np.stack(columns, 1)[part] for columns in zip(*shadows, strict=True))
    return Evidence(told.outputs, told.losses, told.confidences, answers, inside)


def _confidences(outputs: Tensor, targets: Tensor) -> Tensor:
    """log(p / (1 − p)) of the right class's probability p."""
    right = outputs.gather(1, targets[:, None])[:, 0]
    return right - outputs.scatter(1, targets[:, None], -torch.inf).logsumexp(1)


def _losses(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each example by itself."""
    each = zip(outputs.split(1), targets.split(1), strict=True)  # type: ignore[no-untyped-call]
    return torch.stack([task.loss(*one) for one in each])


def _drawn(shards: Sequence[Shard], count: int, rng: np.random.Generator) -> Iterator[tuple[Shard, Tensor]]:
    """Positions of ``count`` examples, each of all the shards' examples with the same chance."""
    sizes = [len(shard) for shard in shards]
    chosen = np.zeros(sum(sizes), bool)
    chosen[rng.choice(len(chosen), count, replace=False)] = True
    for shard, of_shard in zip(shards, np.split(chosen, np.cumsum(sizes)[:-1]), strict=True):
        if of_shard.any():
            yield shard, torch.from_numpy(np.flatnonzero(of_shard))


def attack_table(runs: Sequence[AttackedRun]) -> TextTable:
    """One row per run and attack."""
    rows = [
        [
            run.method,
            str(run.seed),
            run.by,
            f"{run.attack.accuracy * 100:.2f} ± {run.attack.error * 100:.2f}",
            f"{run.attack.auc:.3f} ± {run.attack.auc_error:.3f}",
            f"{run.attack.hits * 100:.2f} ± {run.attack.hits_error * 100:.2f}",
            run.metric.text(run.on_members),
            run.metric.text(run.on_others),
        ]
        for run in runs
    ]
    header = ["method", "seed", "attack", "right (%)", "AUC", "TPR at 1 % FPR (%)", "members", "others"]
    caption = (
        "right: how often the attack is right whether an example was trained on; TPR: members that are found while 1 % "
        "of the others are taken for members. Guessing gives 50 %, an AUC of 0.5 and a TPR of 1 %. ±: standard errors. "
        f"members, others: the model's own {runs[0].metric.name} on training and test examples."
    )
    sides: tuple[Side, ...] = ("left", "right", "left", "right", "right", "right", "right", "right")
    return TextTable("Membership inference", header, sides, rows, caption)
