"""What a run would be, before it is one: what takes part, what travels, and about how long it takes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import Any

from rich.console import RenderableType
from rich.filesize import decimal
from torch import Tensor

from fedpace.analysis import duration, panels, stage_rows
from fedpace.client import Gradient
from fedpace.core import Buffers, RoundRecord, Update, devices
from fedpace.data import Federation
from fedpace.engine import Auto, Execution, Processes, Training, Turn, Worker, cores, one_thread
from fedpace.engine.checks import check_task
from fedpace.experiments.config import RunConfig
from fedpace.experiments.overviews import planned_windows
from fedpace.experiments.run import prepared
from fedpace.methods import MethodTurn

TRIED = 3  # rounds of each stage: what is sent may change from the first to the second, and evenly from then on


@dataclass(frozen=True)
class DryRun:
    """What a run would be. ``cohort`` clients take part in a round; ``seconds`` are a guess.

    ``stages`` are their names with when they are and what they do. Of the ``parameters`` of the model so many are
    ``shared``. Bytes are of the whole run and of all clients.
    """

    method: str
    data: str
    seed: int
    rounds: int
    clients: int
    cohort: int
    parameters: int
    shared: int
    stages: list[tuple[str, str]]
    bytes_up: int
    bytes_down: int
    seconds: float
    warnings: list[str]

    def overview(self) -> RenderableType:
        """For a terminal."""
        whom = "all of them in each round" if self.cohort == self.clients else f"{self.cohort} of them in each round"
        run = [
            ("run", f"{self.method} on {self.data}, seed {self.seed}: {self.rounds} rounds"),
            ("clients", f"{self.clients}, {whom}"),
            ("parameters", f"{self.parameters:,}, of which {self.shared:,} are shared"),
        ]
        cost = [
            ("up", f"about {decimal(self.bytes_up)}"),
            ("down", f"about {decimal(self.bytes_down)}"),
            ("time", f"about {duration(self.seconds)}"),
        ]
        warnings = [("", text) for text in self.warnings]
        return panels({"Nothing was run": run, "Stages": self.stages, "Cost": cost, "Warnings": warnings})


def dry_run(config: RunConfig) -> DryRun:
    """Say what a config would do. Nothing is trained and nothing is written.

    The first rounds of each stage are played with the real server, where one client takes one local step, and its
    answer is the answer of all. What is counted there is then projected to all rounds of the stage.
    """
    module, federation, plan = prepared(config)
    check_task(plan.local, plan.task)
    module = plan.local.prepare(module, plan.seed)
    layout = plan.local.layout(module)
    worker = Worker(copy.deepcopy(module), federation, layout, plan.task, devices.choose(plan.device))
    rehearsal = _Rehearsal(worker, federation)
    with one_thread():
        training = Training(module, federation, plan, rehearsal)
        played = _played(config, training, rehearsal)
    return DryRun(
        method=config.method,
        data=config.data.source,
        seed=config.seed,
        rounds=config.rounds,
        clients=len(federation),
        cohort=training.cohort_size,
        parameters=layout.size,
        shared=layout.shared.size,
        stages=stage_rows(config.model_dump(mode="json"), planned_windows(config)),
        bytes_up=_bytes(config, {number: one.record.bytes_up for number, one in played.items()}),
        bytes_down=_bytes(config, {number: one.record.bytes_down for number, one in played.items()}),
        seconds=_seconds(config, {number: one.seconds for number, one in played.items()}),
        warnings=training.warnings,
    )


@dataclass(frozen=True)
class _Played:
    """A round that was played, and how long it would really take."""

    record: RoundRecord
    seconds: float


class _Rehearsal(Execution):
    """Does the first of some turns, with one step instead of all, and gives its answer for every turn."""

    def __init__(self, worker: Worker, federation: Federation) -> None:
        self._worker, self._federation = worker, federation
        self.device = devices.HOST
        self.spent = self.expected = 0.0  # seconds: here, and of a worker that would do all turns whole

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        """Answer."""
        if not turns:
            return
        short, begun = replace(turns[0], work=_one_step(turns[0].work)), perf_counter()
        self._worker.answer(short, vector, buffers, extras or {})  # the first time is slower
        again = perf_counter()
        update = self._worker.answer(short, vector, buffers, extras or {}).to(self.device)
        ended = perf_counter()
        self.spent += ended - begun
        self.expected += (ended - again) * sum(self._steps(turn) for turn in turns)
        for turn in turns:
            yield replace(update, client=turn.client, state=None)

    def _steps(self, turn: Turn) -> int:
        batches = _batches(turn.work)
        return 1 if batches is None else batches.steps(self._federation.clients[turn.client])

    def close(self) -> None:
        """Nothing is up."""


def _batches(work: Any) -> Any:
    """What says over how many batches a piece of work goes, if it is several."""
    return work.method if isinstance(work, MethodTurn) else work if isinstance(work, Gradient) else None


def _one_step(work: Any) -> Any:
    batches = _batches(work)
    if batches is None:
        return work
    short = batches.model_copy(update={"epochs": 1, "max_steps": 1})
    return work.model_copy(update={"method": short}) if isinstance(work, MethodTurn) else short


def _played(config: RunConfig, training: Training, rehearsal: _Rehearsal) -> dict[int, _Played]:
    """The first rounds of each stage, by their numbers."""
    found = {}
    for number in sorted(number for rounds in _by_stage(config).values() for number in rounds[:TRIED]):
        rehearsal.spent = rehearsal.expected = 0.0
        begun = perf_counter()
        record = training.round(number)
        servers_own = perf_counter() - begun - rehearsal.spent
        found[number] = _Played(record, servers_own + rehearsal.expected / _workers(config))
    return found


def _by_stage(config: RunConfig) -> dict[str, list[int]]:
    schedule = config.schedule()
    found: dict[str, list[int]] = {}
    for number in range(config.rounds):
        found.setdefault(schedule.stage(number).name, []).append(number)
    return found


def _bytes(config: RunConfig, played: Mapping[int, int]) -> int:
    """Of all rounds, of which the first ones of each stage are known: while it freezes, each sends so much less."""
    schedule, total = config.schedule(), 0.0
    for rounds in _by_stage(config).values():
        known = [played[number] for number in rounds[:TRIED]]
        left = len(rounds) - len(known)
        if left and any(exchange.freezes for exchange in schedule.stage(rounds[0]).exchanges):
            total += left * known[-1] + (known[-1] - known[-2]) * left * (left + 1) / 2
        elif left:
            total += left * fmean(known[1:])  # clients that do not wait are sent nothing in every other round
        total += sum(known)
    return round(total)


def _seconds(config: RunConfig, played: Mapping[int, float]) -> float:
    """Of all rounds, each as fast as the fastest of its stage: the first one of all waits for imports."""
    return sum(len(rounds) * min(played[n] for n in rounds[:TRIED]) for rounds in _by_stage(config).values())


def _workers(config: RunConfig) -> int:
    """How many clients train at a time."""
    return (config.executor.workers or cores()) if isinstance(config.executor, Auto | Processes) else 1
