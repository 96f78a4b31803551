"""One worker: a resident model that does one task after another for any client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from fedpace.client import ClientWork, Context
from fedpace.core import Buffers, FlatModule, Layout, Tensors, Update, derive
from fedpace.data import Federation, Shard
from fedpace.tasks import Classification
from fedpace.tasks import Task as Problem

CLASSIFICATION = Classification()
_FLOATS, _INTEGERS = "buffers.floats", "buffers.integers"


@dataclass(frozen=True)
class Task:
    """A piece of work for one client, with what that client kept from its last turn."""

    client: int
    work: ClientWork
    seed: int
    on: Literal["train", "client_test", "test"] = "train"
    state: Tensors = field(default_factory=dict)
    extras: Tensors = field(default_factory=dict)  # what this client alone is sent
    keeps_buffers: bool = False  # they never leave the client: a part of its state


class Worker:
    """Holds the model and the clients' data, and answers tasks. A client's mistake becomes a failed update."""

    def __init__(
        self, module: nn.Module, federation: Federation, layout: Layout | None = None, problem: Problem = CLASSIFICATION
    ) -> None:
        self.model = FlatModule(module, layout)
        self._problem = problem
        self._federation = federation

    def answer(self, task: Task, vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor]) -> Update:
        """Do a task from the server's vector and buffers, and what it sent along."""
        own = Buffers(task.state[_FLOATS], task.state[_INTEGERS]) if _FLOATS in task.state else buffers
        training = self._federation.clients[task.client] if task.client >= 0 else None
        extras = {**extras, **task.extras}
        context = Context(self.model, own, task.client, task.seed, extras, task.state, training, self._problem)
        torch.manual_seed(derive(task.seed, "torch"))  # dropout and the like in the user's model
        try:
            update = task.work(vector, self._shard(task), context)
        except Exception as error:  # whatever a client does wrong must not stop the round
            return Update(task.client, failure=f"{type(error).__name__}: {' '.join(str(error).split())}")
        return _with_buffers_in_state(update, task) if task.keeps_buffers else update

    def _shard(self, task: Task) -> Shard:
        if task.on == "test":
            return self._federation.test
        if task.on == "client_test" and self._federation.client_tests is not None:
            return self._federation.client_tests[task.client]
        return self._federation.clients[task.client]


def _with_buffers_in_state(update: Update, task: Task) -> Update:
    if update.buffers is None:
        return update
    kept = {_FLOATS: update.buffers.floats, _INTEGERS: update.buffers.integers}
    return replace(update, buffers=None, state={**task.state, **(update.state or {}), **kept})
