"""The config of a run: typed, assembled from the parameters that rules, partitions and methods declare themselves."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from fedpace.aggregation import AnyRule, Dampened, Mean
from fedpace.attacks import Attack, SignFlip, attacks
from fedpace.client import Gradient
from fedpace.core import (
    ConfigError,
    Device,
    Durability,
    Settings,
    Weights,
    by_name,
    devices,
    same_name,
)
from fedpace.data import Augmentation, Dirichlet, Partition, Shift, parse_augmentations, partitions, shifts, sources
from fedpace.engine import IRRELEVANT, AnySpeeds, Asynchronous, Cohort, Executor, Measuring, Plan, Processes
from fedpace.engine.executors import executors
from fedpace.experiments.tunable import Range, Tunable
from fedpace.methods import LocalSGD, Method, Scaffold, methods
from fedpace.models import ModelConfig, parse_model
from fedpace.server import (
    Annealing,
    AnyOptimizer,
    AnyPace,
    BufferPolicy,
    Exchange,
    Freezing,
    Guard,
    Privacy,
    Pruning,
    Schedule,
    Secure,
    ServerSGD,
    Stage,
)
from fedpace.tasks import Task, tasks
from fedpace.wire import AnyWire, Float32

Window = Annotated[int, Field(ge=0)]

_MODEL = "small_cnn"
AnyModel = Annotated[str | ModelConfig, BeforeValidator(lambda value: parse_model(value, _MODEL))]


def _switched(value: Any) -> Any:
    """``secure = true`` is secure aggregation with its defaults."""
    return ({} if value else None) if isinstance(value, bool) else value


def _found(device: Device) -> Device:
    """``auto`` becomes the device that it means here, so that a run's folder says where the run was made."""
    return devices.choose(device).type if device == "auto" else device


def _spelled(source: str) -> str:
    """A name as it is registered; a path as it is."""
    return same_name(source, sources.names()) or source


class DataConfig(Settings):
    """Which data, how they are dealt to clients, and how each client sees them.

    ``source`` is a registered name or a path, ``options`` are parameters of the source other than its ``size``.
    ``augment`` lists augmentations of the batches that clients train on; gradients are taken of examples as they are.
    """

    source: Annotated[str, AfterValidator(_spelled)] = "digits"
    size: int | None = Field(None, ge=1)
    options: dict[str, str | int | float | bool | tuple[str, ...]] = Field(default_factory=dict)
    partition: SerializeAsAny[Annotated[Partition, by_name(partitions, "dirichlet")]] = Dirichlet()
    shift: SerializeAsAny[Annotated[Shift, by_name(shifts)]] | None = None
    augment: Annotated[tuple[SerializeAsAny[Augmentation], ...], BeforeValidator(parse_augmentations)] = ()


class AggregateConfig(Settings):
    """What happens in a round outside every stage; the default is FedAvg, weighted by samples (McMahan et al.).

    ``sends`` is what clients send: an update after local steps, or a gradient. By ``weights`` they count alike
    (uniform), or by their numbers of examples (samples). ``mask_at`` says what a mask multiplies: the server's step
    (post), or the update before the server's optimizer sees it (pre).
    """

    sends: Literal["update", "gradient"] = "update"
    rule: AnyRule = Mean()
    weights: Weights = "samples"
    optimizer: AnyOptimizer = ServerSGD()
    mask_at: Literal["post", "pre"] = "post"


class AnnealConfig(Annealing):
    """Fed-GGA search at the beginning of the rounds ``first`` to ``last``, then a round as outside every stage.

    A stage that is not ``enabled`` is left out.
    """

    enabled: bool = True
    first: Window = 2
    last: Window | None = 15


class ConflictConfig(Settings):
    """What dampening and pruning have in common: the agreement is taken of gradients or of pseudo-gradients.

    The ``source`` is what clients send. ``lr`` is the server's step; it defaults to 0.01 on gradients (FedPACE) and to
    1 on pseudo-gradients. The stage lasts from round ``first`` to ``last``, or to the end. One that is not ``enabled``
    is left out.
    """

    enabled: bool = True
    source: Literal["gradient", "pseudo"] = "gradient"
    rule: AnyRule = Dampened()
    lr: float | None = Field(None, gt=0)

    def exchange(self, base: Exchange, **more: Any) -> Exchange:
        """The exchange that these settings describe, with clients weighted as in ``base``."""
        gradient = self.source == "gradient"
        return Exchange(
            sends="gradient" if gradient else "update",
            rule=self.rule,
            weights=base.weights,
            optimizer=ServerSGD(lr=self.lr or (0.01 if gradient else 1.0)),
            **more,
        )


class DampenConfig(ConflictConfig):
    """Sign-agreement dampening: of what clients send by the ``rule``, of the steps they take by the ``pace`` (ours).

    ``then_fedavg`` appends an ordinary round to each (what the authors' runs did).
    """

    first: Window = 20
    last: Window | None = None
    then_fedavg: bool = False
    pace: AnyPace | None = None

    @model_validator(mode="after")
    def _paces_local_steps(self) -> DampenConfig:
        if self.pace is not None and self.source == "gradient":
            raise ValueError("pace scales local steps: expected source = 'pseudo', found 'gradient'")
        return self


class PruneConfig(ConflictConfig, Pruning):
    """Dampening, and pruning of persistent conflict.

    Conflicts are counted from the stage named in ``count_from`` on.
    """

    first: Window = 42
    last: Window | None = None
    count_from: Literal["pruning", "dampening"] = "pruning"


class FreezeConfig(Settings):
    """Elimination by freezing: from round ``first`` to ``last`` the ``share`` of frozen coordinates grows evenly.

    A stage that is not ``enabled`` is left out.
    """

    enabled: bool = True
    first: Window = 20
    last: Window | None = None
    share: float = Field(0.9, gt=0, le=1)


class RunConfig(Settings):
    """A whole run. Every field has a default, so a preset says only what is particular to it.

    ``method`` is what tables and folders call the run, with a ``description`` in one line; ``kind`` keeps ablations out
    of lists of methods. Clients train for so many ``rounds``; stages of a preset move along with their number. The
    ``seed`` decides about partition, initial model and training. The ``task`` is what is learnt, by default what the
    targets suggest. ``buffers`` says what becomes of BatchNorm statistics. ``attackers`` is the share of all clients
    that do the ``attack`` instead of what they should. The ``wire`` is the format in which what clients send travels.
    The ``device`` is auto, cpu, cuda, cuda:1 and so on, or mps. ``durability`` is what finished rounds survive: the end
    of the process, or a failure of the power. Rounds are logged live to what ``track`` lists.
    """

    method: str = "fedavg"
    kind: Literal["method", "ablation"] = "method"
    description: str = ""
    rounds: int = Field(50, ge=1)
    seed: int = Field(0, ge=0)
    data: DataConfig = DataConfig()
    task: SerializeAsAny[Annotated[Task, by_name(tasks, "classification")]] | None = None
    model: AnyModel = _MODEL
    cohort: Cohort = Cohort()
    speeds: AnySpeeds | None = None
    asynchronous: Asynchronous | None = None
    local: SerializeAsAny[Annotated[Method, by_name(methods, "sgd")]] = LocalSGD()
    aggregate: AggregateConfig = AggregateConfig()
    anneal: AnnealConfig | None = None
    dampen: DampenConfig | None = None
    prune: PruneConfig | None = None
    freeze: FreezeConfig | None = None
    secure: Annotated[Secure | None, BeforeValidator(_switched)] = None
    buffers: BufferPolicy = "weighted_mean"
    guard: Guard = Guard()
    privacy: Privacy | None = None
    attackers: float = Field(0.0, ge=0, lt=1)
    attack: SerializeAsAny[Annotated[Attack, by_name(attacks)]] = SignFlip()
    measuring: Measuring = Measuring()
    wire: AnyWire = Float32()
    device: Annotated[Device, AfterValidator(_found)] = "cpu"
    executor: SerializeAsAny[Annotated[Executor, by_name(executors, "processes")]] = Processes()
    durability: Durability = "process"
    track: tuple[Literal["tensorboard", "mlflow"], ...] = ()
    tunable: Tunable = Field(default_factory=lambda: {"local.lr": Range()})

    @model_validator(mode="after")
    def _steps_have_a_length(self) -> RunConfig:
        paced = self.dampen is not None and self.dampen.enabled and self.dampen.pace is not None
        if paced and isinstance(self.local, Scaffold) and self.local.option == "II":
            raise ValueError(
                "dampen.pace changes the length of local steps, from which SCAFFOLD's option II takes its gradient: "
                "expected local.option = 'I', found 'II'"
            )
        return self

    @model_validator(mode="after")
    def _late_ones_join(self) -> RunConfig:
        if self.cohort.joins is not None and self.cohort.joins >= self.rounds:
            raise ValueError(f"cohort.joins: expected a round below {self.rounds}, found {self.cohort.joins}")
        return self

    @model_validator(mode="after")
    def _freezes_by_the_memory_of_a_pace(self) -> RunConfig:
        if self.freeze is not None and self.freeze.enabled and not self._paced_throughout():
            raise ValueError(
                "freeze ranks coordinates by what the pace remembers: expected dampen.pace from round 0 to the end"
            )
        return self

    def _paced_throughout(self) -> bool:
        dampen = self.dampen
        if dampen is None or not dampen.enabled or dampen.pace is None:
            return False
        return (dampen.first, dampen.last, dampen.then_fedavg) == (0, None, False)

    def schedule(self) -> Schedule:
        """The stages that the tables ``anneal``, ``dampen``, ``prune`` and ``freeze`` describe.

        Where all rounds are paced, pacing is the base of the other stages and not a window beside theirs.
        """
        base, name = Exchange(**dict(self.aggregate)), self._base_name()
        stages: list[Stage] = []
        dampen = self.dampen if self.dampen is not None and self.dampen.enabled else None
        prune = self.prune if self.prune is not None and self.prune.enabled else None
        counts = prune is not None and prune.count_from == "dampening"
        paced = self._paced_throughout()
        if dampen is not None and paced:
            optimizer = base.optimizer
            base, name = dampen.exchange(base, counts=counts, pace=dampen.pace), "dampen"
            base = base if dampen.lr is not None else base.model_copy(update={"optimizer": optimizer})
        if self.anneal is not None and self.anneal.enabled:
            stages.append(
                Stage(
                    name="anneal",
                    first=self.anneal.first,
                    last=self.anneal.last,
                    search=self.anneal,
                    exchanges=(base,),
                )
            )
        if dampen is not None and not paced:
            exchange = dampen.exchange(base, counts=counts, pace=dampen.pace)
            exchanges = (exchange, base) if dampen.then_fedavg else (exchange,)
            stages.append(Stage(name="dampen", first=dampen.first, last=dampen.last, exchanges=exchanges))
        if prune is not None:
            exchange = prune.exchange(base, counts=True, prunes=True)
            stages.append(Stage(name="prune", first=prune.first, last=prune.last, exchanges=(exchange,)))
        if self.freeze is not None and self.freeze.enabled:
            last = self.rounds - 1 if self.freeze.last is None else self.freeze.last
            freezes = Freezing(share=self.freeze.share, per_round=self.freeze.share / max(last - self.freeze.first, 1))
            exchange = base.model_copy(update={"freezes": freezes})
            stages.append(Stage(name="freeze", first=self.freeze.first, last=self.freeze.last, exchanges=(exchange,)))
        return Schedule(base=Stage(name=name, exchanges=(base,)), stages=tuple(stages), pruning=prune)

    def _base_name(self) -> str:
        rule = self.aggregate.rule.registered_name()
        return rule if rule != "mean" else "fedsgd" if self.aggregate.sends == "gradient" else "fedavg"

    def fingerprint(self) -> str:
        """Eight hexadecimal digits that differ between configs whose results may differ; the seed is left out.

        >>> RunConfig(seed=1, description="again").fingerprint() == RunConfig().fingerprint()
        True
        """
        # A setting that has its default is left out, so that settings which are new tomorrow change no digest.
        relevant = self.model_dump(mode="json", exclude={*IRRELEVANT, "seed"}, exclude_defaults=True)
        return blake2b(json.dumps(relevant, sort_keys=True).encode(), digest_size=4).hexdigest()

    def shortened(self, rounds: int) -> RunConfig:
        """The same course in another number of rounds: windows keep their place relative to the whole.

        >>> config = RunConfig(rounds=50, dampen={"first": 20}).shortened(10)
        >>> config.rounds, config.dampen.first
        (10, 4)
        """

        def moved(number: int) -> int:
            return number * rounds // self.rounds

        changes: dict[str, Any] = {"rounds": rounds}
        if self.cohort.joins is not None:
            changes["cohort"] = self.cohort.model_copy(update={"joins": max(moved(self.cohort.joins), 1)})
        for name in ("anneal", "dampen", "prune", "freeze"):
            stage = getattr(self, name)
            if stage is not None:
                # The round after a window is moved, not its last one: neighbours then neither overlap nor part.
                first, last = moved(stage.first), None if stage.last is None else moved(stage.last + 1) - 1
                vanished = last is not None and last < first
                changes[name] = None if vanished else stage.model_copy(update={"first": first, "last": last})
        return self.model_copy(update=changes)

    def plan(self) -> Plan:
        """What the engine needs, apart from data and model."""
        return Plan(
            schedule=self.schedule(),
            rounds=self.rounds,
            seed=self.seed,
            local=self.local,
            # gradients are averaged over the same batches that local training would see
            gradient=Gradient(epochs=self.local.epochs, batch=self.local.batch, max_steps=self.local.max_steps),
            cohort=self.cohort,
            speeds=self.speeds,
            asynchronous=self.asynchronous,
            guard=self.guard,
            privacy=self.privacy,
            buffers=self.buffers,
            measuring=self.measuring,
            wire=self.wire,
            device=self.device,
            durability=self.durability,
            executor=self.executor,
            config=self.model_dump(mode="json"),
            upgrade=upgraded,
        )


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """A config as an older version wrote it, completed with today's defaults; one that is no longer valid as it is."""
    try:
        return RunConfig(**config).model_dump(mode="json")
    except (ValidationError, ConfigError):
        return config
