"""One worker: a resident model that does one turn after another for any client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from fedpace.client import ClientWork, Context
from fedpace.core import Buffers, FlatModule, Layout, Tensors, Update, derive, devices, one_line
from fedpace.data import Federation, Shard
from fedpace.engine.sending import as_it_arrives, keeping
from fedpace.tasks import Classification, Task
from fedpace.wire import Wire

CLASSIFICATION = Classification()
_FLOATS, _INTEGERS = "buffers.floats", "buffers.integers"


@dataclass(frozen=True)
class Turn:
    """A piece of work for one client, with what that client kept from its last turn."""

    client: int
    work: ClientWork
    seed: int
    on: Literal["train", "client_test", "test"] = "train"
    state: Tensors = field(default_factory=dict)
    extras: Tensors = field(default_factory=dict)  # what this client alone is sent
    keeps_buffers: bool = False  # they never leave the client: a part of its state
    wire: Wire | None = None  # the format in which its vector travels; None: as it is


class Worker:
    """Holds the model and the clients' data, and answers turns. A client's mistake becomes a failed update.

    The model lies on the ``device``, to which everything that a turn needs is moved; answers lie there, too.
    """

    def __init__(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: torch.device = devices.HOST,
    ) -> None:
        self.model = FlatModule(module, layout, device)
        self._task = task
        self._federation = federation

    def move(self, device: torch.device) -> None:
        """Go on with the model on a device."""
        if device != self.model.device:
            self.model = FlatModule(self.model.module, self.model.layout, device)

    def answer(self, turn: Turn, vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor]) -> Update:
        """Do a turn from the server's vector and buffers, and what it sent along."""
        here = self.model.device
        context = self._context(turn, buffers, extras)
        devices.seed(derive(turn.seed, "torch"), here)  # dropout and the like in the user's model
        try:
            return _sent(turn.work(vector.to(here), self._shard(turn), context), turn, len(vector), context)
        except Exception as error:  # whatever a client does wrong must not stop the round
            return Update(turn.client, failure=f"{type(error).__name__}: {one_line(error)}")

    def answers(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor]
    ) -> Iterator[Update]:
        """Do turns with the same stackable work as one computation. A client's mistake becomes that of all."""
        shards, extras = [self._shard(turn) for turn in turns], devices.moved(extras, self.model.device)
        contexts = [self._context(turn, buffers, extras) for turn in turns]
        updates = turns[0].work.stacked(vector.to(self.model.device), shards, contexts)
        for turn, update, context in zip(turns, updates, contexts, strict=True):
            yield _sent(update, turn, len(vector), context)

    def _context(self, turn: Turn, buffers: Buffers, extras: Mapping[str, Tensor]) -> Context:
        here = self.model.device
        state = devices.moved(turn.state, here)
        own = Buffers(state[_FLOATS], state[_INTEGERS]) if _FLOATS in state else buffers.to(here)
        training = self._federation.clients[turn.client] if turn.client >= 0 else None
        extras = devices.moved({**extras, **turn.extras}, here)
        return Context(self.model, own, turn.client, turn.seed, extras, state, training, self._task)

    def _shard(self, turn: Turn) -> Shard:
        if turn.on == "test":
            return self._federation.test
        if turn.on == "client_test" and self._federation.client_tests is not None:
            return self._federation.client_tests[turn.client]
        return self._federation.clients[turn.client]


def _sent(update: Update, turn: Turn, size: int, context: Context) -> Update:
    """An answer as the server gets it, and what the client keeps of it."""
    update = as_it_arrives(update, turn, size, context.extras)
    return _with_buffers_in_state(update, context.state) if turn.keeps_buffers else update


def _with_buffers_in_state(update: Update, state: Mapping[str, Tensor]) -> Update:
    if update.buffers is None:
        return update
    kept = {_FLOATS: update.buffers.floats, _INTEGERS: update.buffers.integers}
    return keeping(replace(update, buffers=None), state, kept)
