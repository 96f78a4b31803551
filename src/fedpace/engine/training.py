"""The round loop: sample a cohort, let the executor run client work, give the updates to the server, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.client import ClientWork, Gradient, LocalSGD, Method, Probe
from fedpace.core import Buffers, ClientError, FlatModule, Tensors, Update, derive
from fedpace.data import Federation
from fedpace.engine.checks import check_classes, check_personal, check_task
from fedpace.engine.cohort import Cohort
from fedpace.engine.events import Listener, Record
from fedpace.engine.executors import Execution, Executor, Processes
from fedpace.engine.folder import RunFolder, Upgrade
from fedpace.engine.measuring import Measuring, collect
from fedpace.engine.states import ClientStates
from fedpace.engine.worker import CLASSIFICATION, Task
from fedpace.server import BufferPolicy, ExchangeReport, Guard, Schedule, Server, Stage, traffic
from fedpace.server.annealing import Path as ProbePath
from fedpace.tasks import Task as Problem


@dataclass(frozen=True)
class Plan:
    """Everything that defines a run, apart from data and model. ``local`` is the method by which clients train."""

    schedule: Schedule = field(default_factory=Schedule)
    rounds: int = 50
    seed: int = 0
    local: Method = field(default_factory=LocalSGD)
    problem: Problem = CLASSIFICATION
    gradient: ClientWork = field(default_factory=Gradient)
    cohort: Cohort = field(default_factory=Cohort)
    guard: Guard = field(default_factory=Guard)
    buffers: BufferPolicy = "weighted_mean"
    measuring: Measuring = field(default_factory=Measuring)
    executor: Executor = field(default_factory=Processes)
    config: dict[str, Any] = field(default_factory=dict)
    upgrade: Upgrade = dict  # completes the config in a run folder of an older version


@dataclass(frozen=True)
class Outcome:
    """What a run ends with: the trained module, its rounds, and the warnings it gave."""

    module: nn.Module
    records: list[Record]
    warnings: list[str]


def train(
    module: nn.Module,
    federation: Federation,
    plan: Plan,
    *,
    folder: Path | None = None,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Run a plan. With a folder every finished round is safe on disk; ``resume`` goes on as if never interrupted."""
    check_task(plan.local, plan.problem)
    module = plan.local.prepare(module, plan.seed)
    layout = plan.local.layout(module)
    with one_thread(), plan.executor.start(module, federation, layout, plan.problem) as execution:
        training = Training(module, federation, plan, execution, listeners)
        return training.run(RunFolder(folder) if folder is not None else None, resume=resume)


class Training:
    """One run in progress."""

    def __init__(
        self,
        module: nn.Module,
        federation: Federation,
        plan: Plan,
        execution: Execution,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.plan = plan
        self.federation = federation
        self.cohort_size = plan.cohort.size(len(federation))
        self.warnings = plan.schedule.validate_for(plan.rounds, self.cohort_size)
        self._model = FlatModule(module, plan.local.layout(module))
        check_personal(plan.local, plan.schedule, federation, self._model.layout)
        self.warnings += check_classes(plan.local, federation)
        self._execution = execution
        self._listeners = listeners
        layout = self._model.layout
        self.server = Server(
            layout.shared,
            layout.take_shared(self._model.vector),
            self._model.buffers,
            plan.schedule,
            guard=plan.guard,
            buffer_policy=plan.buffers,
            pairwise=plan.measuring.pairwise,
            half=plan.local.server_half(layout, len(federation)),
            ruled=plan.local.ruled(layout),
        )
        if execution.secure:
            self.server.check_sums(self.cohort_size)
        self._states = ClientStates()
        self._first_state = plan.local.first_state(self._model)

    def run(self, folder: RunFolder | None, *, resume: bool) -> Outcome:
        """All rounds that are not done yet."""
        with nullcontext() if folder is None else folder.claimed():
            records = self._open(folder, resume=resume)
            for listener in self._listeners:
                listener.started(self.plan.config, self.plan.rounds, len(records))
            try:
                return self._rounds(folder, records)
            except BaseException:
                for listener in self._listeners:
                    listener.failed()
                raise

    def _rounds(self, folder: RunFolder | None, records: list[Record]) -> Outcome:
        for message in self.warnings:
            self._warn(message)
        for round in range(len(records), self.plan.rounds):
            record = self.round(round)
            records.append(record)
            if folder is not None:
                folder.append(record)
                folder.checkpoints.write(round, self.server.state() | self._states.index())
            for listener in self._listeners:
                listener.finished_round(record)
        self._warn_of_idle_search(records)
        self._model.layout.put_shared(self._model.vector, self.server.vector)
        self._model.buffers.copy_(self.server.buffers)
        if folder is not None:
            folder.finish(self._model.state_dict(), self.warnings)
        for listener in self._listeners:
            listener.ended(folder.path if folder is not None else None)
        return Outcome(self._model.module.eval(), records, self.warnings)

    def round(self, round: int) -> Record:
        """One round: search, exchanges, evaluation."""
        stage = self.plan.schedule.stage(round)
        cohort = self.plan.cohort.sample(len(self.federation), seed=self.plan.seed, round=round)
        seconds = dict.fromkeys(("search", "local", "aggregate", "evaluate"), 0.0)
        record: Record = {"round": round, "stage": stage.name, "cohort": cohort}

        start = perf_counter()
        search = self.server.search(stage, self._seed("search", round), partial(self._probe, stage, round, cohort))
        seconds["search"] = perf_counter() - start
        record["search"] = search.to_json() if search is not None else None

        record |= {"similarity": None, "agreement": None, "diagnostics": {}, "dropped": [], "train_loss": None}
        extra_up = extra_down = 0  # numbers
        frozen = self.server.frozen
        for number, exchange in enumerate(stage.exchanges()):
            if number == 0 and search is not None and stage.ends_with_search:
                continue
            start = perf_counter()
            extras = self.server.extras(exchange)
            tasks = self._tasks(exchange, round, cohort, number)
            report, waited = self._exchange(exchange, tasks, extras, partial(self._keep, round))
            extra_up += report.extras
            extra_down += sum(sum(map(Tensor.numel, (extras | task.extras).values())) for task in tasks)
            seconds["local"] += waited
            seconds["aggregate"] += perf_counter() - start - waited
            if report.failed == len(
                cohort
            ):  # one client's failure is its own; if all fail, the model or data is at fault
                reason = report.dropped[0]["reason"]
                raise ClientError(f"every client failed in round {round}; the first one with {reason}")
            record["dropped"] += report.dropped
            record |= {"agreement": report.agreement, "diagnostics": report.diagnostics}
            record |= {"similarity": report.similarity, "train_loss": report.train_loss}
            if report.clipped is not None:
                record |= {"secure": True, "clipped": record.get("clipped", 0) + report.clipped}
        if record["similarity"] is None and search is not None:
            record["similarity"] = {"kind": "probe", "mean": search.probe_mean, "min": search.probe_min}
        record |= {"pruned": self.server.pruned, "frozen": frozen / max(self.server.layout.size, 1)}
        up, down = traffic(stage, self.server.layout, self.server.buffers, self.plan.buffers, len(cohort), frozen)
        record |= {"bytes_up": up + 4 * extra_up, "bytes_down": down + 4 * extra_down}
        start = perf_counter()
        record |= self._evaluate(round, cohort)
        seconds["evaluate"] = perf_counter() - start
        record["seconds"] = seconds
        finite: Record = _without_nan(record)
        return finite

    @property
    def _model_now(self) -> tuple[Tensor, Buffers]:
        return self.server.vector, self.server.buffers

    def _exchange(
        self, stage: Stage, tasks: Sequence[Task], extras: Tensors, keep: Callable[[Update], None]
    ) -> tuple[ExchangeReport, float]:
        """Let clients work and the server step; also the seconds spent waiting for clients."""
        if not self._execution.secure:
            timed = _Timed(self._execution.run(tasks, *self._model_now, extras))
            return self.server.exchange(stage, timed, len(tasks), keep), timed.seconds
        start = perf_counter()
        collected = self._execution.sums(tasks, *self._model_now, extras, self.server.weighing(stage))
        waited = perf_counter() - start
        return self.server.exchange_sums(stage, collected, len(tasks), keep), waited

    def _tasks(self, stage: Stage, round: int, cohort: Sequence[int], number: int) -> list[Task]:
        local = self.plan.local.at(round / self.plan.rounds)
        work = local if stage.sends == "update" else self.plan.gradient
        return [
            Task(
                client,
                work,
                self._seed("client", round, client, number),
                state=self._state(client),
                extras=self._sent_to(client),
                keeps_buffers=self.plan.buffers == "local",
            )
            for client in cohort
        ]

    def _sent_to(self, client: int) -> Tensors:
        return {} if self.server.half is None else self.server.half.sends_to(client)

    def _state(self, client: int) -> Tensors:
        return self._states.of(client) or self._first_state

    def _keep(self, round: int, update: Update) -> None:
        if update.state is not None:
            self._states.keep(update.client, round, update.state)

    def _seed(self, *names: str | int) -> int:
        return derive(self.plan.seed, *names)

    def _probe(
        self, stage: Stage, round: int, cohort: Sequence[int], paths: Sequence[ProbePath]
    ) -> Iterator[list[Update]]:
        """Ask the cohort for its gradients at every path's point, on the same batch per client."""
        search = stage.search
        assert search is not None  # the server asks only then
        tasks = [
            Task(
                client,
                Probe(perturbation=search.perturbation, path=path, batch=search.batch, sketch=search.sketch),
                self._seed("probe", round, client),
                state=self._state(client),
            )
            for path in paths
            for client in cohort
        ]
        answers = map(Probe.opened, self._execution.run(tasks, *self._model_now))
        size = search.sketch or self.server.layout.size
        for _ in paths:
            yield [self._kept(update) for update in islice(answers, len(cohort)) if self._usable(update, size)]

    def _usable(self, update: Update, size: int) -> bool:
        return self.server.guard.reason_to_drop(update, size) is None

    @staticmethod
    def _kept(update: Update) -> Update:
        assert update.vector is not None  # the guard let it pass
        return Update(update.client, update.vector.clone(), update.examples, update.metrics)

    def _evaluate(self, round: int, cohort: Sequence[int]) -> Record:
        if not self.plan.measuring.due(round, self.plan.rounds):
            return {"accuracy": None, "loss": None, "client_accuracy": {}}
        personal = self.plan.local.personal
        if not personal:
            tasks = self.plan.measuring.tasks(self.federation, cohort, self._state)
        else:
            seeds = (self._seed("evaluation", round, client) for client in range(len(self.federation)))
            tasks = [
                Task(
                    client,
                    self.plan.local.evaluation(),
                    seed,
                    on="client_test",
                    state=self._state(client),
                    extras=self._sent_to(client),
                )
                for client, seed in enumerate(seeds)
            ]
        answers = self._execution.run(tasks, *self._model_now, self.server.extras(self.plan.schedule.stage(round)))
        on = "train" if self.federation.client_tests is None else "test"
        measured = collect(zip(tasks, answers, strict=True), personal=personal)
        return {**measured, "client_accuracy_on": on}

    def _open(self, folder: RunFolder | None, *, resume: bool) -> list[Record]:
        if folder is None:
            return []
        self._states = folder.states
        description = {"config": self.plan.config, "seed": self.plan.seed, "warnings": self.warnings}
        description |= {"parameters": self.server.layout.size, "data": self.federation.fingerprint()}
        description["clients"] = len(self.federation)
        if not (resume and (folder.path / "run.json").exists()):
            folder.create(description)
            return []
        folder.resume(description, self.plan.upgrade)
        found = folder.checkpoints.last(self._states.holds)
        if found is None:
            return folder.keep_rounds_before(0)
        round, tensors = found
        self.server.load_state(tensors)
        self._states.restore(tensors)
        return folder.keep_rounds_before(round + 1)

    def _warn(self, message: str) -> None:
        for listener in self._listeners:
            listener.warned(message)

    def _warn_of_idle_search(self, records: Sequence[Record]) -> None:
        searches = [record["search"] for record in records if record["search"] is not None]
        if searches and not any(search["accepted"] for search in searches):
            tried = sum(search["candidates"] for search in searches)
            gains = [s["sim_best"] - s["sim0"] for s in searches if None not in (s["sim_best"], s["sim0"])]
            message = f"annealing did nothing: none of {tried} perturbations was accepted"
            self.warnings.append(message + (f" (largest gain {max(gains):.2g})" if gains else ""))
            self._warn(self.warnings[-1])


class _Timed:
    """Iterates over updates and measures the time that is spent waiting for them."""

    def __init__(self, updates: Iterator[Update]) -> None:
        self._updates = updates
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Update]:
        while True:
            start = perf_counter()
            try:
                update = next(self._updates)
            except StopIteration:
                return
            finally:
                self.seconds += perf_counter() - start
            yield update


def _without_nan(value: Any) -> Any:
    """Records are JSON, which knows no NaN: what is not finite becomes null."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread while a run lasts: workers need the cores, and sums must not depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
