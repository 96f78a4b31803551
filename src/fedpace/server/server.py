"""The server: θ, what it remembers, and one step from what clients sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedpace.aggregation import MagnitudeAgreement, Rows
from fedpace.core import (
    Agreement,
    Buffers,
    ConfigError,
    Dropped,
    Layout,
    SearchReport,
    ServerSide,
    Similarity,
    Tensors,
    Update,
    Weights,
    devices,
    weight_of,
    with_prefix,
)
from fedpace.server.annealing import Annealing, SeedPath
from fedpace.server.bounds import Bounded, Bounds
from fedpace.server.buffers import BufferPolicy, BufferStream
from fedpace.server.clipping import Adaptive
from fedpace.server.guard import Guard
from fedpace.server.monitor import Monitor
from fedpace.server.optimizers import NOT_FINITE, UNCHANGED
from fedpace.server.parts import Parts
from fedpace.server.privacy import PrivateRound, check_private, weight_within_one
from fedpace.server.pruning import Pruner
from fedpace.server.schedule import Exchange, Schedule
from fedpace.server.sums import Collected, Secure, Weighing, check_schedule, quantities

log = logging.getLogger("fedpace")


def _ignore(update: Update) -> None:
    """Nobody listens."""


@dataclass
class ExchangeReport:
    """What one exchange with the clients showed.

    ``answered`` clients sent something, ``used`` of them something that could be used; ``extras`` numbers came along
    with the updates; where these were summed in secret, ``clipped`` of their values lay outside the range of the sums.
    ``bounded`` is what the guard's bounds did. ``still`` says why the model stayed as it was, if it did.
    """

    answered: int = 0
    used: int = 0
    extras: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    similarity: Similarity | None = None
    agreement: Agreement | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    train_loss: float | None = None
    clipped: int | None = None
    bounded: Bounded = field(default_factory=Bounded)
    still: str | None = None


class Server:
    """θ, the buffers, and everything that the server remembers from round to round.

    ``server_side`` is that of the clients' work, where it has one; ``ruled`` is the part of the layout that the
    stages' rules aggregate, usually all. Whatever is as long as the model lies where ``vector`` does, the
    server's side on the host.
    """

    def __init__(
        self,
        layout: Layout,
        vector: Tensor,
        buffers: Buffers,
        schedule: Schedule,
        *,
        guard: Guard | None = None,
        buffer_policy: BufferPolicy = "weighted_mean",
        pairwise: int = 32,
        server_side: ServerSide | None = None,
        ruled: Layout | None = None,
    ) -> None:
        self.layout = layout
        self.ruled = ruled or layout
        self.vector = vector.clone()
        self._device = vector.device
        self.buffers = buffers.clone()
        self.schedule = schedule
        self.guard = guard or Guard()
        self._bounds = Bounds(self.guard)
        self.buffer_policy = buffer_policy
        self.pairwise = pairwise
        self.pruner = Pruner(schedule.pruning, layout, vector.device) if schedule.pruning is not None else None
        self.server_side = server_side
        self._optimizer: Tensors = {}
        self._agreement: Tensor | None = None  # what the pace remembers
        self._frozen: Tensor | None = None
        self._rows = Rows(0, 0)  # of the last exchange

    def search(
        self, search: Annealing, seed: int
    ) -> Generator[Sequence[SeedPath], Iterator[list[Update]], SearchReport | None]:
        """Let a search find a point, and move θ there; see :data:`fedpace.server.annealing.Search`."""
        before = self.vector
        self.vector, report = yield from search.search(self.vector, self.layout, seed)
        self._respect_mask(before)
        return report

    def extras(self, exchange: Exchange) -> Tensors:
        """What goes to clients along with θ: the memory of their algorithm, and a pace once a round was seen."""
        if exchange.sends == "gradient":
            return {}
        memory = {} if self.server_side is None else self.server_side.sends()
        sent = {name: tensor.clone() for name, tensor in memory.items()}  # it learns while clients still train
        if exchange.pace is not None and self._agreement is not None:
            sent["pace"] = exchange.pace.of(self._agreement)
        if self._frozen is not None:
            sent["pace"] = sent.get("pace", torch.ones_like(self.vector)).masked_fill(self._frozen, 0.0)
        return sent

    def exchange(
        self,
        exchange: Exchange,
        updates: Iterable[Update],
        clients: int,
        accepted: Callable[[Update], None] = _ignore,
        seed: int = 0,
    ) -> ExchangeReport:
        """Aggregate the updates of at most ``clients`` clients and take one step; ``accepted`` hears of each.

        A rule that draws does so from ``seed``.
        """
        report = ExchangeReport()
        server_side = self.server_side if exchange.sends == "update" else None
        used: list[int] = []
        with devices.placed(self._device):
            stream = Parts(exchange.rule, self.layout, self.ruled, clients, seed)
            monitor = Monitor(self.layout, clients, exchange.sends, stream.signs, self.pairwise, stream.rows)
            agreement = MagnitudeAgreement(self.layout.size) if exchange.pace is not None else None
            touched = torch.zeros(self.layout.size, dtype=torch.bool) if exchange.counts else None
        monitor.rows.reuse(self._rows)
        self._rows = monitor.rows
        buffers = BufferStream(self.buffer_policy)
        losses, frozen = [], self.frozen
        usable = self._usable(updates, server_side, report)
        for update in self._bounds.within(usable, exchange.sends, report.bounded):
            assert update.vector is not None
            accepted(update)
            if server_side is not None:
                server_side.learn(replace(update, extras=devices.moved(update.extras, devices.HOST)))
                report.extras += sum(tensor.numel() for tensor in update.extras.values())
                report.extras -= frozen * sum(tensor.numel() == self.layout.size for tensor in update.extras.values())
            weight = update.discount * weight_of(update.examples, exchange.weights)
            stream.add(update.vector, weight, update.discount * update.examples)
            if agreement is not None:
                agreement.add(update.vector, weight)
            monitor.add(update.vector)
            buffers.add(update.buffers, update.discount * update.examples)
            if touched is not None:
                touched |= update.vector != 0
            losses.append(update.metrics.get("loss", float("nan")))
            used.append(update.client)
        stream.say_whose(used)
        report.used = len(used)
        if not losses:
            log.warning("no client's update could be used: the model stays as it is")
            report.still = "no update could be used"
            return report
        if server_side is not None:
            server_side.finish()
        report.train_loss = sum(losses) / len(losses)
        self._remember(exchange, agreement)
        self._conclude(exchange, stream, monitor, touched, buffers, report)
        return report

    def _usable(
        self, updates: Iterable[Update], server_side: ServerSide | None, report: ExchangeReport
    ) -> Iterator[Update]:
        """The updates that the guard lets pass."""
        for update in updates:
            report.answered += update.failure is None
            reason = self.guard.reason_to_drop(update, self.layout.size, self.buffers, server_side)
            if reason is None:
                yield update
            else:
                self._drop(update, reason, report)

    def lend_row(self) -> Tensor | None:
        """Memory in which the next update of an exchange may be handed over: if it is to be kept, no copy is made."""
        return self._rows.lend()

    def exchange_sums(
        self,
        exchange: Exchange,
        collected: Collected,
        clients: int,
        accepted: Callable[[Update], None] = _ignore,
        *,
        private: PrivateRound | None = None,
    ) -> ExchangeReport:
        """Take one step from the sums of at most ``clients`` updates, none of which the server has seen.

        Both sums are zero where no client moved. (So they are where updates cancel out exactly.) In a ``private`` round
        the noise is in the sum already, which is divided by the expected number of clients.
        """
        report = ExchangeReport(train_loss=collected.train_loss, clipped=collected.clipped, extras=collected.numbers)
        for update in collected.clients:
            report.answered += update.failure is None
            if update.failure is not None:
                self._drop(update, update.failure, report)
        sums = collected.sums
        if sums is None:
            log.warning("%s: the model stays as it is", collected.ended)
            report.still = collected.ended
            return report
        for update in collected.clients:
            if update.failure is None:
                accepted(update)
        report.used = sums.clients
        sums = sums if private is None else replace(sums, weight=private.clients)
        stream = Parts(exchange.rule, self.layout, self.ruled, clients)
        monitor = Monitor(self.layout, clients, exchange.sends, stream.signs, pairwise=0)
        buffers = BufferStream(self.buffer_policy)
        stream.absorb(sums)
        monitor.absorb(sums)
        buffers.add(collected.buffers, 1)
        touched = (sums.of("signs").total != 0) | (sums.total != 0) if exchange.counts else None
        if exchange.pace is not None:
            agreement = MagnitudeAgreement(self.layout.size)
            agreement.absorb(sums)
            self._remember(exchange, agreement)
        self._conclude(exchange, stream, monitor, touched, buffers, report)
        return report

    def exchange_private(
        self,
        exchange: Exchange,
        updates: Iterable[Update],
        clients: int,
        accepted: Callable[[Update], None] = _ignore,
        *,
        private: PrivateRound,
        generator: torch.Generator,
    ) -> ExchangeReport:
        """Take one step from noisy sums, even if nobody answered: that there was nobody must not be told either.

        What the report says of updates is what was seen before the noise, for whoever is trusted with the run.
        """
        report = ExchangeReport()
        with devices.placed(self._device):
            stream = Parts(exchange.rule, self.layout, self.ruled, private.voters)
            noisy = Monitor(self.layout, private.voters, exchange.sends, stream.signs, pairwise=0)
            monitor = Monitor(self.layout, max(clients, 1), exchange.sends, None, self.pairwise)
            total = torch.zeros(self.layout.size)
        signed, adaptive = private.needs_signs(exchange), isinstance(self.guard.clip, Adaptive)
        noise = private.settings.multipliers(private.clients, adaptive=adaptive, signed=signed)
        losses = []
        for update in self._bounds.within(self._usable(updates, None, report), exchange.sends, report.bounded):
            assert update.vector is not None
            accepted(update)
            total.add_(update.vector, alpha=weight_within_one(update.examples, exchange, self.guard))
            monitor.add(update.vector)
            losses.append(update.metrics.get("loss", float("nan")))
        report.used = len(losses)
        report.train_loss = sum(losses) / len(losses) if losses else None
        bound = report.bounded.bound or 0.0
        sums = private.noisy(total, monitor.signs.sum if signed else None, bound, noise, generator)
        if noise.count is not None:
            below = report.used - len(report.bounded.shortened)
            share = private.noisy_share(below, report.used, noise.count, generator)
            self._bounds.learns(exchange.sends, report.bounded, share)
        stream.absorb(sums)
        noisy.absorb(sums)
        touched = torch.ones_like(total, dtype=torch.bool) if exchange.counts else None
        self._conclude(exchange, stream, noisy, touched, BufferStream("keep_server"), report)
        report.similarity, report.agreement = monitor.similarity(), monitor.agreement()
        return report

    def check_private(self, secure: Secure | None = None) -> None:
        """Refuse a run in which a client can change more than noise on sums hides."""
        check_private(self.schedule, self.guard, secure)
        if self.server_side is not None:
            raise ConfigError("privacy: the server's side of this method learns from each update alone")
        if self.ruled.size != self.layout.size:
            raise ConfigError("privacy: expected one weighting of the whole model, found a part by samples")
        if self.statistics and self.buffer_policy != "keep_server":
            raise ConfigError(
                "privacy: BatchNorm statistics would travel without noise; expected buffers = 'keep_server', 'local' "
                f"or a model without them, found '{self.buffer_policy}'"
            )

    def weighing(self, exchange: Exchange) -> Weighing:
        """How clients are to weigh what they add to the sums of an exchange."""
        averaged = exchange.sends == "update" and self.buffer_policy in ("weighted_mean", "mean")
        if not averaged or not len(self.buffers.floats):
            return Weighing(exchange.weights, None, quantities(exchange))
        buffers: Weights = "samples" if self.buffer_policy == "weighted_mean" else "uniform"
        return Weighing(exchange.weights, buffers, quantities(exchange))

    def check_sums(self, clients: int, secure: Secure) -> None:
        """Refuse a run for which sums over ``clients`` clients are too little to see, or too much."""
        check_schedule(self.schedule, clients, secure)
        if self.server_side is not None:
            raise ConfigError("secure aggregation: the server's side of this client work learns from each update alone")
        if self.ruled.size != self.layout.size:
            raise ConfigError("secure aggregation: expected one weighting of the whole model, found a part by samples")
        if self.buffer_policy == "first":
            raise ConfigError("secure aggregation: buffers = 'first' are one client's own; expected 'weighted_mean'")
        if self.guard.nonfinite != "drop_client":
            raise ConfigError(
                "secure aggregation: clients that are not finite leave the round by themselves; expected nonfinite = "
                f"'drop_client', found '{self.guard.nonfinite}'"
            )
        if self.guard.bounded:
            names = ", ".join(self.guard.bounded)
            raise ConfigError(f"secure aggregation: bounds need each client's own update; expected no guard.{names}")

    @staticmethod
    def _drop(update: Update, reason: str, report: ExchangeReport) -> None:
        log.warning("client %s dropped: %s", update.client, reason)
        report.dropped.append(Dropped(update.client, reason))

    def _remember(self, exchange: Exchange, agreement: MagnitudeAgreement | None) -> None:
        """What the pace keeps of a round's agreement."""
        if exchange.pace is None or agreement is None:
            return
        latest = agreement.finish()[1]
        if self._frozen is not None and self._agreement is not None:  # nobody moved there: that is no conflict
            torch.where(self._frozen, self._agreement, latest, out=latest)
        self._agreement = exchange.pace.remember(self._agreement, latest)

    def _conclude(
        self,
        exchange: Exchange,
        stream: Parts,
        monitor: Monitor,
        touched: Tensor | None,
        buffers: BufferStream,
        report: ExchangeReport,
    ) -> None:
        """Step, now that everything has been added, and say what was seen."""
        aggregate, mask = stream.split() if exchange.mask_at == "post" else (stream.finish(), None)
        report.still = self._step(exchange, aggregate, mask, monitor, touched)
        if report.still == NOT_FINITE:
            log.warning("%s: the model stays as it is", NOT_FINITE)
        else:
            buffers.finish(self.buffers)
        report.similarity, report.agreement = monitor.similarity(), monitor.agreement()
        report.diagnostics = stream.diagnostics
        if exchange.freezes is not None and self._agreement is not None:
            known = self._frozen if self._frozen is not None else torch.zeros_like(self.vector, dtype=torch.bool)
            self._frozen = exchange.freezes.widened(known, self._agreement)

    def _step(
        self, exchange: Exchange, update: Tensor, mask: Tensor | None, monitor: Monitor, touched: Tensor | None
    ) -> str | None:
        """Move θ, as far as what is frozen and pruned lets it; why it stays where it is, if it does."""
        restrained = self.pruner is not None or self._frozen is not None
        before = self.vector.clone() if restrained else self.vector
        still = exchange.optimizer.step(self.vector, update, self._optimizer, mask)
        if still == NOT_FINITE or not restrained:
            return still
        if self._frozen is not None:  # momentum would go on, and a client may ignore its pace
            torch.where(self._frozen, before, self.vector, out=self.vector)
        if self.pruner is not None:
            self._prune(self.pruner, exchange, before, monitor, touched)
        return UNCHANGED if torch.equal(before, self.vector) else None

    def _prune(
        self, pruner: Pruner, exchange: Exchange, before: Tensor, monitor: Monitor, touched: Tensor | None
    ) -> None:
        if touched is not None:
            pruner.count(monitor.signs, touched)
        if exchange.prunes:
            pruner.prune()
        pruner.apply(before, self.vector, monitor.signs if exchange.prunes else None)

    def _respect_mask(self, before: Tensor) -> None:
        if self._frozen is not None and self.vector is not before:
            torch.where(self._frozen, before, self.vector, out=self.vector)
        if self.pruner is not None and self.vector is not before:
            self.pruner.apply(before, self.vector, None)

    @property
    def pruned(self) -> float:
        """Share of the parameters that is pruned."""
        return self.pruner.share if self.pruner is not None else 0.0

    @property
    def frozen(self) -> int:
        """How many parameters take no more steps."""
        return int(self._frozen.sum()) if self._frozen is not None else 0

    @property
    def statistics(self) -> int:
        """How many numbers of BatchNorm statistics and the like go to a client."""
        return 0 if self.buffer_policy == "local" else len(self.buffers.floats) + len(self.buffers.integers)

    def state(self) -> dict[str, Tensor]:
        """Everything that a checkpoint needs, as a snapshot."""
        tensors = {
            "vector": self.vector,
            "buffers.floats": self.buffers.floats,
            "buffers.integers": self.buffers.integers,
        }
        tensors |= {f"optimizer.{name}": tensor for name, tensor in sorted(self._optimizer.items())}
        if self.server_side is not None:
            tensors |= {f"memory.{name}": tensor for name, tensor in self.server_side.memory.items()}
        tensors |= {f"guard.{name}": tensor for name, tensor in self._bounds.state().items()}
        if self._agreement is not None:
            tensors["agreement"] = self._agreement
        if self._frozen is not None:
            tensors["frozen"] = self._frozen
        if self.pruner is not None:
            tensors |= {"pruning.mask": self.pruner.mask, "pruning.counters": self.pruner.counters}
        return {name: tensor.clone() for name, tensor in tensors.items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        if self.server_side is not None:
            self.server_side.memory = with_prefix("memory.", tensors)
        self._bounds.load_state(with_prefix("guard.", tensors))
        tensors = devices.moved(tensors, self._device)
        self.vector = tensors["vector"]
        self.buffers = Buffers(tensors["buffers.floats"], tensors["buffers.integers"])
        self._optimizer = with_prefix("optimizer.", tensors)
        self._agreement, self._frozen = tensors.get("agreement"), tensors.get("frozen")
        if self.pruner is not None:
            self.pruner.mask, self.pruner.counters = tensors["pruning.mask"], tensors["pruning.counters"]
