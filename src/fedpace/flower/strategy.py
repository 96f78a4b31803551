"""Our server as a Flower strategy: existing apps put it in the place of ``FedAvg``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Unpack

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedpace.aggregation import Rule
from fedpace.core import (
    ClientError,
    ConfigError,
    RoundReport,
    RunFolderError,
    Tensors,
    Update,
    numpy_stream,
    written_aside,
)
from fedpace.flower._arrays import Arrays, is_buffer, values
from fedpace.flower._options import FedAvgOptions, Optimizer, Weights
from fedpace.flower._replies import (
    GRADIENT,
    PACE,
    PARAMETERS,
    PROBE,
    PROBES,
    SEND,
    UNREADABLE,
    VECTORS,
    arrays_of,
    averaged,
    content_of,
    examples_of,
    first_by_node,
    in_order,
    metrics_of,
    refuse_large,
    why,
)
from fedpace.flower._stages import exchange, guard_of
from fedpace.flower._wire import to_record
from fedpace.server import Ask, AskProbes, AskUpdates, Exchange, Guard, Round, Schedule, Server, Stage

log = logging.getLogger("fedpace")


MANY = 1_000_000  # nodes, enough for any rule


@dataclass
class _Model:
    """The server, and its θ and buffers as the app's arrays."""

    arrays: Arrays
    server: Server
    record: ArrayRecord

    def take(self, record: ArrayRecord) -> None:
        """θ is what clients receive: in the arrays' precision, perhaps changed by what wraps the strategy."""
        if record is not self.record:
            self.record = record
            self.arrays.read(record, self.server.vector, self.server.buffers)

    def settle(self) -> None:
        """Write what the server found into arrays; θ is then what they hold."""
        record = self.arrays.record(self.server.vector, self.server.buffers)
        if self.arrays.lossless:
            self.record = record
        self.take(record)


@dataclass
class _UnderWay:
    """What is going on between ``configure_train`` and ``aggregate_train``."""

    grid: Grid
    config: ConfigRecord
    round: Round
    questions: Iterator[Ask]
    accepted: set[int]  # nodes whose replies were used
    asked: AskUpdates | None = None  # what the next replies will answer


class ServerStrategy(FedAvg):
    """Runs a :class:`Schedule` with our :class:`Server` on the ClientApps of any Flower app.

    A ClientApp that works with Flower's ``FedAvg`` works unchanged: it receives an ArrayRecord and a ConfigRecord, and
    answers with one ArrayRecord (its new weights) and one MetricRecord with ``num-examples``. A client that answers
    anything else (NaN, other arrays or shapes, an error, nothing) is dropped with a warning and the round goes on; if
    nobody is left, the model stays as it is, and if that lasts longer than the guard's patience, an error says why.
    Nodes are drawn from named seeds and replies are aggregated in the order of node ids, whoever answers first. Three
    things need a ClientApp's help, for which ``fedpace.flower`` has helpers: stages that ask for gradients
    (``gradient_reply``), searches (``answer_probe``), and paces (``apply_pace``).

    Parameters: a ``schedule`` (its windows count from 0: Flower's round 1 is our round 0), or the ``rule``, server
    ``optimizer`` and ``weights`` ("samples" or "uniform") of all rounds. Then all of FedAvg's, and: ``seed``;
    ``guard``, what happens to values that are not finite, and the bounds of what one client may do; ``buffers``, which
    tells by their names the arrays that are averaged by examples and that no rule touches (what is not floating point
    is one anyway; of integers the largest is taken); ``pairwise``, of how many clients cosines are measured (their
    updates are kept for that, so by default of none); ``sends_pace``, whether ClientApps understand a pace; ``wait``,
    the seconds after which too few nodes are an error; ``timeout``, the seconds for messages that Flower's ``start``
    does not send itself (probes, a second exchange within a round).

    Metrics beside the clients' own: ``clients``, ``dropped``, the mean ``agreement``, ``similarity`` (mean cosine) and
    ``similarity-min``, where they apply ``pruned``, ``search-accepted`` and ``search-gain``, how many clients the guard
    ``capped`` and ``shortened`` and to which ``bound``, and numbers of the rule.

    Cost: one vector for the updates, which are formed one by one, and what the rule needs. Parameters are float32 here:
    arrays of higher precision lose it.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        *,
        rule: Rule | str | Mapping[str, Any] | None = None,
        optimizer: Optimizer | None = None,
        weights: Weights | None = None,
        seed: int = 0,
        guard: Guard | Mapping[str, Any] | None = None,
        buffers: Callable[[str], bool] = is_buffer,
        pairwise: int = 0,
        sends_pace: bool = False,
        wait: float = 600.0,
        timeout: float = 3600.0,
        **fedavg: Unpack[FedAvgOptions],
    ) -> None:
        super().__init__(**fedavg)
        parts = {"rule": rule, "optimizer": optimizer, "weights": weights}
        given = {name: value for name, value in parts.items() if value is not None}
        if schedule is not None and given:
            raise ConfigError(f"a schedule says it all: expected no {' or '.join(given)} beside it")
        self.schedule = schedule or Schedule(base=Stage(exchanges=(exchange(**given),)))
        self.seed, self.guard, self.is_buffer, self.pairwise = seed, guard_of(guard), buffers, pairwise
        self.sends_pace, self.wait, self.timeout = sends_pace, wait, timeout
        self.rounds_done = 0  # with those before a restart
        self._before = 0  # of these, those before a restart
        self._model: _Model | None = None
        self._round: _UnderWay | None = None
        self._reports: list[RoundReport] = []  # of the last rounds
        self._cautions(MANY)  # here only for its errors: how many nodes there will be is not known yet

    @property
    def model(self) -> _Model:
        """The model, once there is one."""
        if self._model is None:
            raise ConfigError("this strategy has no model yet: expected a round, or load, before this")
        return self._model

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the cohort, search if the stage does, and ask for updates or gradients."""
        self._round = None
        if self.fraction_train == 0.0:
            return []
        number = self._before + server_round - 1
        nodes = self._sample(grid, "cohort", number, self.fraction_train, self.min_train_nodes)
        self._take(arrays, len(nodes))
        accepted = set[int]()
        under_way = Round(self.model.server, number, nodes, self.seed, lambda update: accepted.add(update.client))
        self._round = _UnderWay(grid, self._config(config, number), under_way, iter(under_way), accepted)
        self._advance(self._round)
        return self._train_messages(self._round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the server's step with every reply that can be used."""
        now, self._round = self._round, None
        if now is None:
            return None, None  # nobody was asked
        used = list[RecordDict]()
        while now.asked is not None:
            answers = in_order(replies, now.asked.clients)
            now.accepted.clear()
            now.asked.answer(self._updates(now.asked.exchange, answers))
            self._advance(now)
            used = [reply.content for client, reply in answers if reply is not None and client in now.accepted]
            if now.asked is not None:  # another exchange within the round, of which Flower knows nothing
                replies = now.grid.send_and_receive(self._train_messages(now), timeout=self.timeout)
        self.rounds_done = now.round.report.round + 1
        self._check_hope(now.round.report)
        metrics = averaged(used, self.weighted_by_key, self.train_metrics_aggr_fn)
        return self.model.record, MetricRecord({**metrics, **self._figures(now.round.report)})

    def _check_hope(self, report: RoundReport) -> None:
        """A model that does not change any more is no result; Flower's ``start`` ends with the reason."""
        self._reports = [*self._reports, report][-self.guard.patience :]
        reason = self.guard.reason_to_stop(self._reports)
        if reason is not None:
            raise ClientError(reason)

    def _advance(self, now: _UnderWay) -> None:
        """Go on to the next question that a training message asks; probes are asked and answered on the way."""
        moved, now.asked = now.asked is not None, None
        for question in now.questions:
            if isinstance(question, AskUpdates):
                now.asked = question
                break
            assert isinstance(question, AskProbes)  # sums are asked for in secure runs, which no strategy does
            question.answer(self._probed(now, question))
            moved = True
        if moved:
            self.model.settle()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the nodes that evaluate, and ask them."""
        if self.fraction_evaluate == 0.0:
            return []
        number = self._before + server_round - 1
        nodes = self._sample(grid, "evaluation", number, self.fraction_evaluate, self.min_evaluate_nodes)
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: self._config(config, number)})
        return self._construct_messages(content, nodes, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the clients' metrics, without clients that did not answer as they should."""
        used = []
        for client, reply in sorted(first_by_node(replies).items()):
            try:
                examples_of(content_of(reply), self.weighted_by_key)
            except UNREADABLE as error:
                log.warning("evaluation of client %d dropped: %s", client, why(error))
            else:
                used.append(reply.content)
        return averaged(used, self.weighted_by_key, self.evaluate_metrics_aggr_fn) if used else None

    def save(self, path: str | Path) -> None:
        """Write the model and everything that the server remembers: whole, or not at all.

        Flower's ``start`` calls its ``evaluate_fn`` after each round, which is a good place for this.
        """
        target = Path(path)
        about = {"rounds": str(self.rounds_done), "arrays": self.model.arrays.to_json()}
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with written_aside(target) as aside:
                save_file(self.model.server.state(), aside, metadata=about)
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{target}: could not be written ({error})") from error

    def load(self, path: str | Path) -> ArrayRecord:
        """Go on after the round in which :meth:`save` was called; the arrays are ``start``'s ``initial_arrays``.

        Flower counts rounds from 1 again: ask for ``rounds_done`` fewer. Schedule and ``server-round`` go on counting.
        """
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata()
                tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
            arrays, rounds = Arrays.from_json(about["arrays"]), int(about["rounds"])
            model = self._new_model(arrays)
            model.server.load_state(tensors)
        except (EOFError, KeyError, OSError, TypeError, ValueError, SafetensorError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise RunFolderError(f"{path}: expected what a strategy like this one saved, found {reason}") from error
        model.settle()
        self._model, self._before, self.rounds_done = model, rounds, rounds
        return model.record

    def _new_model(self, arrays: Arrays) -> _Model:
        server = Server(arrays.parameters, *arrays.empty(), self.schedule, guard=self.guard, pairwise=self.pairwise)
        return _Model(arrays, server, ArrayRecord())

    def _take(self, record: ArrayRecord, clients: int) -> None:
        if self._model is None:
            self.guard.check_cohort(clients)
            self._model = self._new_model(Arrays.of(record, self.is_buffer))
            for caution in self._cautions(clients):
                log.warning(caution)
        try:
            self._model.take(record)
        except ValueError as error:
            raise ConfigError(f"the model has changed since the round before: {error}") from None

    def _cautions(self, clients: int) -> list[str]:
        """Reject a schedule that cannot be meant, whatever the number of rounds; why some of it may not act."""
        ends = [(stage.last or stage.first) + 1 for stage in self.schedule.all]
        paced = [stage.name for stage in self.schedule.all if any(each.pace for each in stage.exchanges)]
        unsent = [f"stage '{name}': its pace is not sent (sends_pace = False)" for name in paced if not self.sends_pace]
        return self.schedule.validate_for(max(ends), clients) + unsent

    def _sample(self, grid: Grid, stream: str, number: int, fraction: float, least: int) -> list[int]:
        """The nodes of a round, as many as Flower would draw; too few nodes are waited for, but not forever."""
        end = monotonic() + self.wait
        while True:
            nodes = sorted(grid.get_node_ids())
            size = max(int(len(nodes) * fraction), least)
            needed = max(size, self.min_available_nodes)
            if len(nodes) >= needed:
                break
            if monotonic() >= end:
                raise ClientError(f"expected {needed} nodes within {self.wait:g} s, found {len(nodes)}")
            sleep(min(1.0, max(end - monotonic(), 0.0)))
        drawn = numpy_stream(self.seed, stream, number).choice(len(nodes), size, replace=False)
        return sorted(nodes[int(index)] for index in drawn)

    @staticmethod
    def _config(config: ConfigRecord, number: int) -> ConfigRecord:
        return ConfigRecord({**config, "server-round": number + 1})

    def _train_messages(self, now: _UnderWay) -> Iterable[Message]:
        if now.asked is None:
            return []
        model, config = self.model, dict[str, Any](now.config)
        if now.asked.exchange.sends == "gradient":
            config |= {SEND: GRADIENT, PARAMETERS: list(model.server.layout.names)}
        content = RecordDict({self.arrayrecord_key: model.record, self.configrecord_key: ConfigRecord(config)})
        if self.sends_pace and PACE in now.asked.extras:
            content[PACE] = to_record(dict(model.server.layout.tensors(now.asked.extras[PACE])))
        return self._construct_messages(content, list(now.asked.clients), MessageType.TRAIN)

    def _updates(self, exchange: Exchange, answers: Sequence[tuple[int, Message | None]]) -> Iterator[Update]:
        """One update at a time, always in the same memory, unless the server keeps it."""
        arrays, server, theta = self.model.arrays, self.model.server, self.model.server.vector
        passing, buffers = arrays.empty()
        for client, reply in answers:
            kept = server.lend_row()
            vector = passing if kept is None else kept
            try:
                content = content_of(reply)
                examples = examples_of(content, self.weighted_by_key)
                if exchange.sends == "gradient":  # it has to be called one: clients that know of none send weights
                    arrays.read(arrays_of(content, GRADIENT), vector, None)
                    update = Update(client, vector, examples)
                else:
                    arrays.read(arrays_of(content), vector, buffers, minus=theta)
                    update = Update(client, vector, examples, buffers=buffers)
                    refuse_large(buffers.floats)
                refuse_large(vector)
            except UNREADABLE as error:
                update = Update(client, failure=why(error))
            yield update

    def _probed(self, now: _UnderWay, question: AskProbes) -> Iterator[Update]:
        """Ask each node, in one message, for its gradients at all points; its answers, path by path."""
        paths, size = len(question.paths), question.search.sketch or len(question.vector)
        asked = question.search.model_dump(mode="json", include={"perturbation", "batch", "sketch"})
        names, wish = list(self.model.server.layout.names), json.dumps({**asked, "paths": question.paths})
        config = ConfigRecord({**now.config, PROBES: wish, PARAMETERS: names})
        content = RecordDict({self.arrayrecord_key: self.model.record, self.configrecord_key: config})
        messages = [Message(content, client, PROBE, ttl=self.timeout) for client in question.clients]
        found = list[list[Update]]()
        for client, reply in in_order(now.grid.send_and_receive(messages, timeout=self.timeout), question.clients):
            try:
                found.append(self._probes_in(client, content_of(reply), paths, size))
            except UNREADABLE as error:
                log.warning("probe of client %d dropped: %s", client, why(error))
                found.append([Update(client, failure=why(error))] * paths)
        return (answers[number] for number in range(paths) for answers in found)

    def _probes_in(self, client: int, content: RecordDict, paths: int, size: int) -> list[Update]:
        """One client's answers to all paths."""
        examples, losses = examples_of(content, self.weighted_by_key), metrics_of(content).get("loss")
        found = values(arrays_of(content)[VECTORS])
        if found.shape != (paths, size) or not isinstance(losses, list) or len(losses) != paths:
            raise ValueError(f"expected {paths} losses and vectors of size {size}, found {found.shape}")
        if found.dtype.kind != "f":
            raise ValueError(f"expected vectors of floats, found {found.dtype}")
        with np.errstate(all="ignore"):  # what float32 cannot hold becomes infinite, which the guard notices
            vectors = torch.from_numpy(found.astype(np.float32))
        refuse_large(vectors)
        answers = zip(vectors, losses, strict=True)
        return [Update(client, vector, examples, {"loss": float(loss)}) for vector, loss in answers]

    def _figures(self, report: RoundReport) -> dict[str, float]:
        """What the server saw, as numbers."""
        found: dict[str, Any] = {
            name.replace("_", "-"): value  # as Flower writes them
            for name, value in report.diagnostics.items()
            if isinstance(value, int | float)
        }
        found |= {"clients": report.used, "dropped": len(report.dropped)}
        if report.agreement is not None:
            found["agreement"] = report.agreement.mean
        if report.similarity is not None:
            found |= {"similarity": report.similarity.mean, "similarity-min": report.similarity.min}
        if self.guard.bounded:
            found |= {"capped": len(report.capped), "shortened": len(report.shortened)}
        if report.bound is not None:
            found["bound"] = report.bound
        if self.schedule.pruning is not None:
            found["pruned"] = report.pruned
        if report.search is not None:
            found |= {"search-accepted": report.search.accepted, "search-gain": report.search.gain}
        return {name: float(value) for name, value in found.items()}
