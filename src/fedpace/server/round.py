"""One round, as a conversation: what the server asks of whom, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite, nan
from typing import Generic, TypeVar

from torch import Tensor

from fedpace.core import Buffers, RoundReport, SearchReport, Similarity, Tensors, Update, derive
from fedpace.server.annealing import Annealing, SeedPath
from fedpace.server.freezing import frozen_by
from fedpace.server.privacy import PrivateRound
from fedpace.server.schedule import Exchange
from fedpace.server.server import ExchangeReport, Server
from fedpace.server.sums import Collected, Weighing
from fedpace.wire import Float32, Wire

A = TypeVar("A")


@dataclass
class Question(Generic[A]):
    """What is asked of ``clients`` with the server's θ and buffers. Answer it before the next question is asked for."""

    clients: Sequence[int]
    vector: Tensor
    buffers: Buffers
    _answers: list[A] = field(default_factory=list, init=False, repr=False)

    def answer(self, answers: A) -> None:
        """Hand the answers over; where they are many, they may come one by one."""
        self._answers = [answers]

    @property
    def answers(self) -> A:
        """What was answered."""
        if not self._answers:
            raise RuntimeError(f"{type(self).__name__} was not answered before the round went on")
        return self._answers[0]


@dataclass
class AskProbes(Question[Iterable[Update]]):
    """Each client's gradient and loss at the points to which ``paths`` lead, all on the same batch of that client.

    Answers come path by path, and for each path in the order of the clients.
    """

    search: Annealing
    paths: Sequence[SeedPath]


@dataclass
class AskWork(Question[A]):
    """The ``number``-th exchange of a round. ``extras`` go to all clients along with θ, ``own_extras`` to one."""

    number: int
    exchange: Exchange
    extras: Tensors
    own_extras: Callable[[int], Tensors]


class AskUpdates(AskWork[Iterable[Update]]):
    """What clients send after their work, in the order of the clients."""


@dataclass
class AskSums(AskWork[Collected]):
    """The sum of what clients would send, in which each weighs itself by ``weighing``."""

    weighing: Weighing


Ask = AskProbes | AskUpdates | AskSums


class Round:
    """A round under way. It knows no engine and no network: iterate over its questions, and answer each.

    ::

        under_way = Round(server, number, cohort, seed)
        for question in under_way:
            question.answer(carried(question))
        under_way.report

    ``seed`` is the run's. ``accepted`` hears of every update that is used. With ``secure`` the server asks for sums;
    with ``private`` there is noise in them, which the server adds or, where sums are secret, the clients. ``begun`` are
    the clients that are sent θ in this round, where these are not the cohort, whose answers it waits for.
    Traffic is counted as it happens: vectors of clients as many bytes as their ``wire`` says, without what is frozen,
    everything else 4 bytes a number; personal parts never, and of a client that failed nothing.
    """

    def __init__(
        self,
        server: Server,
        number: int,
        cohort: Sequence[int],
        seed: int,
        accepted: Callable[[Update], None] = lambda update: None,
        *,
        secure: bool = False,
        private: PrivateRound | None = None,
        wire: Wire = Float32(),  # noqa: B008  # it has no state
        begun: Sequence[int] | None = None,
    ) -> None:
        self._server, self._cohort, self._seed = server, list(cohort), seed
        self._begun = self._cohort if begun is None else list(begun)
        self._accepted, self._secure, self._private, self._wire = accepted, secure, private, wire
        self._stage = server.schedule.stage(number)
        self._frozen = server.frozen
        self._up = self._down = 0  # numbers
        self._vectors = 0  # bytes
        self._noted = False  # whether an exchange is over
        self.failure: str | None = None  # why a client failed, if none did any work
        self.report = RoundReport(
            round=number,
            stage=self._stage.name,
            cohort=self._cohort,
            frozen=self._frozen / max(server.layout.size, 1),
        )

    def __iter__(self) -> Iterator[Ask]:
        """The questions: those of a search, then one for each exchange."""
        search = yield from self._search()
        for number, exchange in enumerate(self._stage.exchanges):
            if number > 0 or search is None or not self._stage.ends_with_search:
                yield from self._exchange(number, exchange)
        if self.report.similarity is None and search is not None:
            probed = Similarity("probe", search.probe_mean, search.probe_min)
            self.report = replace(self.report, similarity=probed)
        up, down = self._vectors + 4 * self._up, 4 * self._down
        self.report = replace(self.report, pruned=self._server.pruned, bytes_up=up, bytes_down=down)

    def _search(self) -> Generator[Ask, None, SearchReport | None]:
        if self._stage.search is None:
            return None
        walk = self._server.search(self._stage.search, derive(self._seed, "search", self.report.round))
        try:
            paths = next(walk)
            while True:
                question = AskProbes(self._cohort, *self._model, self._stage.search, paths)
                yield question
                seeds = 2 * sum(map(len, paths))  # a point travels as seeds of 8 bytes
                self._down += len(self._cohort) * (len(question.vector) + self._server.statistics + seeds)
                paths = walk.send(self._by_path(question))
        except StopIteration as end:
            self.report = replace(self.report, search=end.value)
            found: SearchReport | None = end.value
            return found

    def _by_path(self, question: AskProbes) -> Iterator[list[Update]]:
        """The usable answers of each path, copied, because whoever answers may use that memory again."""
        size, answers = question.search.sketch or self._server.layout.size, iter(question.answers)
        for _ in question.paths:
            kept = []
            for update in islice(answers, len(question.clients)):
                self._up += 0 if update.failure else size + 1  # and the loss
                judged = isfinite(update.metrics.get("loss", nan))  # or one client spoils the mean of all
                if judged and self._server.guard.reason_to_drop(update, size) is None and update.vector is not None:
                    kept.append(replace(update, vector=update.vector.clone()))
            yield kept

    def _exchange(self, number: int, exchange: Exchange) -> Iterator[Ask]:
        extras, server_side = self._server.extras(exchange), self._server.server_side
        own: dict[int, Tensors] = (
            {} if server_side is None else {client: server_side.sends_to(client) for client in self._begun}
        )
        asked = (self._cohort, *self._model, number, exchange, extras, lambda client: own.get(client, {}))
        private, clients = self._private, len(self._cohort)
        if self._secure:
            weighing = self._server.weighing(exchange)
            sums = AskSums(*asked, weighing if private is None else replace(weighing, noise=private.noise_of_each))
            yield sums
            seen = self._server.exchange_sums(exchange, sums.answers, clients, self._accepted, private=private)
        else:
            updates = AskUpdates(*asked)
            yield updates
            if private is None:
                seed = derive(self._seed, "rule", self.report.round, number)
                seen = self._server.exchange(exchange, updates.answers, clients, self._accepted, seed)
            else:
                noise = private.generator(self.report.round, number)
                answered = exchange, updates.answers, clients, self._accepted
                seen = self._server.exchange_private(*answered, private=private, generator=noise)
        self._note(exchange, seen, frozen_by(extras))
        self._down += len(self._begun) * (self._server.layout.size + self._server.statistics + _numbers(extras))
        self._down += sum(map(_numbers, own.values()))

    def _note(self, exchange: Exchange, seen: ExchangeReport, frozen: Tensor | None) -> None:
        takes_statistics = exchange.sends == "update" and self._server.buffer_policy != "keep_server"
        moving = self._server.layout.size - (0 if frozen is None else int(frozen.sum()))
        self._vectors += seen.answered * self._wire.bytes_for(moving)
        self._up += seen.answered * (self._server.statistics if takes_statistics else 0) + seen.extras
        if not seen.answered and seen.dropped:
            self.failure = seen.dropped[0].reason
        known = self.report
        searched = known.search is not None and known.search.accepted
        moved, self._noted = searched or (self._noted and known.still is None), True
        self.report = replace(
            known,
            still=None if moved else seen.still,
            used=seen.used,
            dropped=[*known.dropped, *seen.dropped],
            similarity=seen.similarity,
            agreement=seen.agreement,
            diagnostics=seen.diagnostics,
            train_loss=seen.train_loss,
            capped=sorted({*known.capped, *seen.bounded.capped}),
            shortened=sorted({*known.shortened, *seen.bounded.shortened}),
            bound=seen.bounded.bound,
            clipped=known.clipped if seen.clipped is None else (known.clipped or 0) + seen.clipped,
        )

    @property
    def _model(self) -> tuple[Tensor, Buffers]:
        return self._server.vector, self._server.buffers


def _numbers(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())
