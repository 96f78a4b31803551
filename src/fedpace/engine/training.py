"""The loop over rounds: a cohort, the server's questions carried to clients and their answers back, a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from fedpace.client import ClientWork, Gradient, Probe
from fedpace.core import (
    ClientError,
    ConfigError,
    Device,
    Durability,
    FlatModule,
    RoundRecord,
    RoundReport,
    Seconds,
    Tensors,
    Update,
    derive,
    freed_kept,
    with_prefix,
)
from fedpace.data import Federation
from fedpace.engine.asynchronous import Asynchronous, Simulation
from fedpace.engine.attackers import Attackers
from fedpace.engine.checks import (
    check_asynchronous,
    check_borne,
    check_classes,
    check_device,
    check_personal,
    check_private_steps,
    check_speeds,
    check_task,
    check_trusted,
    check_wire,
)
from fedpace.engine.cohort import Cohort
from fedpace.engine.description import Upgrade
from fedpace.engine.ending import idle_search, lost_clients, standstill
from fedpace.engine.events import Listener
from fedpace.engine.executors import Execution, Executor, Processes
from fedpace.engine.folder import RunFolder
from fedpace.engine.measuring import Measuring, collect
from fedpace.engine.participation import Participation, Step, Synchronous
from fedpace.engine.privacy import Ledger, LocalLedger
from fedpace.engine.recorder import Recorder
from fedpace.engine.sending import without_residuals
from fedpace.engine.speeds import Speeds
from fedpace.engine.states import ClientStates
from fedpace.engine.stopwatch import Stopwatch
from fedpace.engine.versions import Version, Versions
from fedpace.engine.worker import CLASSIFICATION, Turn
from fedpace.methods import LocalSGD, Method
from fedpace.server import (
    Adaptive,
    AskProbes,
    AskSums,
    AskUpdates,
    BufferPolicy,
    Guard,
    Privacy,
    Round,
    Schedule,
    Server,
)
from fedpace.tasks import Task
from fedpace.wire import Float32, Wire

NAMED = 1000  # clients, or attackers, up to which a run folder says who they are


@dataclass(frozen=True)
class Plan:
    """Everything that defines a run, apart from data and model. ``local`` is the method by which clients train."""

    schedule: Schedule = field(default_factory=Schedule)
    rounds: int = 50
    seed: int = 0
    local: Method = field(default_factory=LocalSGD)
    task: Task = CLASSIFICATION
    gradient: ClientWork = field(default_factory=Gradient)
    attackers: Attackers | None = None
    cohort: Cohort = field(default_factory=Cohort)
    speeds: Speeds | None = None
    asynchronous: Asynchronous | None = None
    guard: Guard = field(default_factory=Guard)
    privacy: Privacy | None = None
    buffers: BufferPolicy = "weighted_mean"
    measuring: Measuring = field(default_factory=Measuring)
    wire: Wire = field(default_factory=Float32)
    device: Device = "cpu"
    durability: Durability = "process"
    executor: Executor = field(default_factory=Processes)
    config: dict[str, Any] = field(default_factory=dict)
    upgrade: Upgrade = dict  # completes the config in a run folder of an older version

    def __post_init__(self) -> None:
        if self.asynchronous is not None:
            check_asynchronous(self.speeds, self.cohort, self.schedule, self.guard, self.privacy)
        check_speeds(self.speeds, self.schedule)

    def in_a_round(self, population: int) -> int:
        """Whose updates the server uses in a round, of so many clients in all."""
        return (self.asynchronous or self.cohort).size(population)


@dataclass(frozen=True)
class Outcome:
    """What a run ends with: the trained module, its rounds, and the warnings it gave."""

    module: nn.Module
    records: list[RoundRecord]
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
    check_task(plan.local, plan.task)
    if plan.executor.on_this_machine:
        check_device(plan.local, plan.device)
    module = plan.local.prepare(module, plan.seed)
    layout = plan.local.layout(module)
    with (
        one_thread(),
        freed_kept(),
        plan.executor.start(module, federation, layout, plan.task, plan.device) as execution,
    ):
        training = Training(module, federation, plan, execution, listeners)
        return training.run(None if folder is None else RunFolder(folder, plan.durability), resume=resume)


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
        self.cohort_size = plan.in_a_round(len(federation))
        plan.guard.check_cohort(self.cohort_size)
        self.warnings = [*federation.notes, *plan.schedule.validate_for(plan.rounds, self.cohort_size)]
        self._model = FlatModule(module, plan.local.layout(module))
        check_personal(plan.local, plan.schedule, federation, self._model.layout)
        self.warnings += check_classes(plan.local, federation)
        self.warnings += plan.measuring.check(len(federation), personal=plan.local.personal)
        check_borne(plan.schedule, len(federation), plan.attackers)
        self.warnings += check_trusted(plan.schedule, len(federation), self.cohort_size, plan.attackers)
        everybody = self.cohort_size == len(federation)
        check_wire(plan.wire, plan.schedule, plan.privacy, execution.secure, everybody=everybody)
        self._execution = execution
        execution.prepare(plan.local)
        self.warnings += execution.notes
        self._listeners = list(listeners)
        layout = self._model.layout
        self.server = Server(
            layout.shared,
            layout.take_shared(self._model.vector).to(execution.device),
            self._model.buffers.to(execution.device),
            plan.schedule,
            guard=plan.guard,
            buffer_policy=plan.buffers,
            pairwise=plan.measuring.pairwise,
            server_side=plan.local.server_side(layout, len(federation)),
            ruled=plan.local.ruled(layout),
        )
        if execution.secure is not None and plan.attackers is not None:
            raise ConfigError("secure: attackers forge updates that they see, but nobody sees any; drop one of both")
        if execution.secure is not None:
            self.server.check_sums(self.cohort_size, execution.secure)
        self._ledger = None if plan.privacy is None else self._opened(plan.privacy)
        check_private_steps(plan.local, plan.schedule, module)
        self._told = LocalLedger(plan.local, federation.clients, plan.schedule)
        self.warnings += self._told.check()
        self._participation = self._simulated()
        self._versions = Versions()
        self._states = ClientStates()
        self._first_state = plan.local.first_state(self._model)

    def _opened(self, privacy: Privacy) -> Ledger:
        """The ledger of a private run, with as much noise as its ε asks for."""
        plan, secure = self.plan, self._execution.secure
        self.server.check_private(secure)
        if secure is not None and privacy.sampling != "fixed":
            raise ConfigError(
                "privacy: within secure sums the server knows who takes part; expected sampling = 'fixed', found "
                f"'{privacy.sampling}'"
            )
        ledger = Ledger(privacy, plan.cohort, len(self.federation), plan.schedule).with_noise(plan.rounds)
        self.warnings += ledger.check()
        adaptive = isinstance(plan.guard.clip, Adaptive)
        ledger.privacy.multipliers(ledger.clients(0), adaptive=adaptive, signed=False)  # refused now or in no round
        return ledger

    def _simulated(self) -> Participation:
        """Who takes part when."""
        plan, clients = self.plan, self.federation.clients
        duration = None if plan.speeds is None else plan.speeds.of(plan.local, clients, plan.seed)
        if plan.asynchronous is None or duration is None:
            return Synchronous(self._cohort, lambda number: len(plan.schedule.stage(number).exchanges), duration)
        if self._execution.secure is not None:
            raise ConfigError(
                "asynchronous: clients that began at different steps add up to no sum; expected no secure"
            )
        self.warnings += plan.asynchronous.check(len(clients))
        return Simulation(plan.asynchronous, len(clients), duration, plan.seed)

    def run(self, folder: RunFolder | None, *, resume: bool) -> Outcome:
        """All rounds that are not done yet."""
        with nullcontext() if folder is None else folder.claimed():
            records = [] if folder is None else self._open(folder, resume=resume)
            for listener in self._listeners:
                listener.started(self.plan.config, self.plan.rounds, len(records))
            try:
                return self._rounds(folder, records)
            except BaseException:
                for listener in self._listeners:
                    listener.failed()
                raise

    def _open(self, folder: RunFolder, *, resume: bool) -> list[RoundRecord]:
        """The rounds that are done. The recorder listens first: others hear only of what is safe."""
        recorder, self._states = Recorder(folder, self), folder.states
        self._listeners = [recorder, *self._listeners]
        description = {
            "config": self.plan.config,
            "seed": self.plan.seed,
            "warnings": self.warnings,
            "parameters": self.server.layout.size,
            "data": self.federation.fingerprint(),
            "clients": len(self.federation),
            "metric": asdict(self.plan.task.headline),
        }
        if len(self.federation) <= NAMED:
            description["client_names"] = list(self.federation.client_names)
        if self.plan.attackers is not None and len(self.plan.attackers.clients) <= NAMED:
            description["attackers"] = sorted(self.plan.attackers.clients)
        if self._ledger is not None:
            description["privacy"] = self._ledger.description(self.plan.rounds)
        if self.federation.encoding is not None:
            description["encoding"] = self.federation.encoding.to_json()
        return recorder.open(description, self.plan.upgrade, resume=resume)

    def _rounds(self, folder: RunFolder | None, records: list[RoundRecord]) -> Outcome:
        for message in self.warnings:
            self._warn(message)
        for record in records:
            self._told.add(record.cohort, record.round)
        for number in range(len(records), self.plan.rounds):
            reason = self._standstill(records)
            if reason is not None:
                raise ClientError(reason)
            record = self.round(number)
            records.append(record)
            self._note()
            for listener in self._listeners:
                listener.finished_round(record)
        self._judge_end(records)
        self._model.layout.put_shared(self._model.vector, self.server.vector)
        self._model.buffers.copy_(self.server.buffers)
        for listener in self._listeners:
            listener.ended(folder.path if folder is not None else None)
        return Outcome(self._model.module.eval(), records, self.warnings)

    def _standstill(self, records: Sequence[RoundRecord]) -> str | None:
        return standstill(records, self.plan.guard, self.plan.rounds, personal=self.plan.local.personal)

    def _judge_end(self, records: Sequence[RoundRecord]) -> None:
        """A run that never could use a client's update has trained nothing: it is no result."""
        reason = self._standstill(records)
        if reason is not None and not any(record.used for record in records):
            raise ClientError(reason)
        found = [reason, idle_search(records), lost_clients(records, self.plan.guard.patience)]
        for message in filter(None, found):
            self.warnings.append(message)
            self._warn(message)

    def _note(self) -> None:
        """What the execution has to say since it was last asked."""
        new = [note for note in self._execution.notes if note not in self.warnings]
        self.warnings += new
        for message in new:
            self._warn(message)

    def state(self) -> Tensors:
        """Everything that the next round depends on."""
        parts = {"participation": self._participation.state(), "versions": self._versions.state()}
        named = {f"{part}.{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        return self.server.state() | self._states.index() | named

    def restore(self, state: Tensors) -> None:
        """Go back to such a state."""
        self.server.load_state(state)
        self._states.restore(state)
        self._participation.load_state(with_prefix("participation.", state))
        self._versions.load_state(with_prefix("versions.", state))

    def final_model(self) -> Tensors:
        """The trained model."""
        return self._model.state_dict()

    def round(self, number: int) -> RoundRecord:
        """One round, and how good the model is after it."""
        step = self._participation.step(number)
        cohort = step.cohort
        report, seconds = self._converse(step)
        report = replace(report, time=step.time, staleness=step.staleness if self.plan.asynchronous is not None else {})
        if self._ledger is not None:
            report = replace(report, epsilon=self._ledger.epsilon(number + 1))
        if self.plan.local.private is not None:
            self._told.add(cohort, number)
            report = replace(report, local_epsilon=self._told.epsilon)
        start = perf_counter()
        measured = self._evaluate(number, cohort)
        seconds = replace(seconds, evaluate=perf_counter() - start)
        record = RoundRecord(**vars(report), **measured, seconds=seconds)
        return RoundRecord.from_json(record.to_json())  # what listeners hear is what a reader of the folder reads

    def _cohort(self, number: int) -> list[int]:
        if self._ledger is not None:
            return self._ledger.sample(number, self.plan.seed)
        return self.plan.cohort.sample(len(self.federation), seed=self.plan.seed, round_number=number)

    def _converse(self, step: Step) -> tuple[RoundReport, Seconds]:
        """Carry the round's questions to the clients, and their answers back."""
        begun, searched, waited, number = perf_counter(), 0.0, Stopwatch(), step.number
        under_way = Round(
            self.server,
            number,
            step.cohort,
            self.plan.seed,
            partial(self._keep, number),
            secure=self._execution.secure is not None,
            private=None
            if self._ledger is None
            else self._ledger.private(number, self.plan.seed, self._execution.secure),
            wire=self.plan.wire,
            begun=step.begun,
        )
        for question in under_way:
            model = question.vector, question.buffers
            match question:
                case AskProbes():
                    answers = self._execution.run(self._probes(question, number), *model)
                    question.answer(map(Probe.opened, answers))
                    continue
                case AskUpdates():
                    answers = waited.over(self._updates(question, step))
                    attackers = self.plan.attackers
                    question.answer(answers if attackers is None else attackers.forged(answers, number, self.plan.wire))
                case AskSums():
                    own = {client: question.own_extras(client) for client in question.clients}
                    turns = self._turns(question, number, question.clients, own)
                    with waited:
                        sums = self._execution.sums(turns, *model, question.extras, question.weighing)
                    question.answer(sums)
            searched = searched or perf_counter() - begun
        if under_way.failure is not None:  # one client's failure is its own; if all fail, model or data are at fault
            raise ClientError(f"every client failed in round {number}; the first one with {under_way.failure}")
        total = perf_counter() - begun
        searched = searched or total
        return under_way.report, Seconds(searched, waited.seconds, max(total - searched - waited.seconds, 0.0))

    def _updates(self, question: AskUpdates, step: Step) -> Iterator[Update]:
        """What clients answer who each trained from what they were sent when they began."""
        current = Version.of(question, step.begun)
        versions = self._versions.with_current(step.number, current)
        for began, clients in step.groups():
            version, discount = versions[began], self._participation.discount(step.number - began)
            turns = self._turns(question, began, clients, version.own)
            for update in self._execution.run(turns, version.vector, version.buffers, version.extras):
                update.discount = discount
                yield update
        self._versions.keep(step.number, current, self._participation.under_way)

    def _turns(
        self, question: AskUpdates | AskSums, number: int, clients: Sequence[int], own: Mapping[int, Tensors]
    ) -> list[Turn]:
        """What these clients were asked to do in round ``number``."""
        local = self.plan.local.at(number / self.plan.rounds).work()
        return [
            Turn(
                client,
                local if question.exchange.sends == "update" else self.plan.gradient,
                self._seed("client", number, client, question.number),
                state=self._all_state(client),
                extras=own.get(client, {}),
                keeps_buffers=self.plan.buffers == "local",
                wire=self.plan.wire if isinstance(question, AskUpdates) else None,
            )
            for client in clients
        ]

    def _probes(self, question: AskProbes, number: int) -> list[Turn]:
        """Every path on the same batch of a client."""
        search = question.search
        return [
            Turn(
                client,
                Probe(perturbation=search.perturbation, path=path, batch=search.batch, sketch=search.sketch),
                self._seed("probe", number, client),
                state=self._state(client),
            )
            for path in question.paths
            for client in question.clients
        ]

    def _all_state(self, client: int) -> Tensors:
        return self._states.of(client) or self._first_state

    def _state(self, client: int) -> Tensors:
        return without_residuals(self._all_state(client))

    def _keep(self, number: int, update: Update) -> None:
        if update.state is not None:
            self._states.keep(update.client, number, update.state)

    def _seed(self, *names: str | int) -> int:
        return derive(self.plan.seed, *names)

    def _evaluate(self, number: int, cohort: Sequence[int]) -> dict[str, Any]:
        if not self.plan.measuring.due(number, self.plan.rounds):
            return {}
        personal, server_side = self.plan.local.personal, self.server.server_side
        if not personal:
            measured = self._honest(self.plan.measuring.measured(len(self.federation), cohort, self.plan.seed))
            turns = self.plan.measuring.turns(self.federation, measured, self._state)
        else:
            turns = [
                Turn(
                    client,
                    self.plan.local.evaluation(),
                    self._seed("evaluation", number, client),
                    on="client_test",
                    state=self._state(client),
                    extras={} if server_side is None else server_side.sends_to(client),
                )
                for client in self._honest(self.plan.measuring.everybody(len(self.federation), self.plan.seed))
            ]
        extras = self.server.extras(self.plan.schedule.stage(number).exchanges[0])
        answers = self._execution.run(turns, self.server.vector, self.server.buffers, extras)
        on = "train" if self.federation.client_tests is None else "test"
        found = collect(zip(turns, answers, strict=True), self.plan.task, personal=personal)
        return {**found, "clients_on": on}

    def _honest(self, clients: Sequence[int]) -> list[int]:
        """Those whose results somebody cares about."""
        attackers = self.plan.attackers
        return [client for client in clients if attackers is None or client not in attackers.clients]

    def _warn(self, message: str) -> None:
        for listener in self._listeners:
            listener.warned(message)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread while a run lasts: workers need the cores, and sums must not depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
