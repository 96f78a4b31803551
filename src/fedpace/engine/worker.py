"""One worker: a resident model that does one task after another for any client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedpace.client import ClientWork, Context
from fedpace.core import Buffers, FlatModule, Update, derive
from fedpace.data import Federation, Shard


@dataclass(frozen=True)
class Task:
    """A piece of work for one client. Small: this is all that is sent to a worker process."""

    client: int
    work: ClientWork
    seed: int
    on: Literal["train", "client_test", "test"] = "train"
    buffers: Buffers | None = None  # the client's own, where buffers never leave it


class Worker:
    """Holds the model and the clients' data, and answers tasks. A client's mistake becomes a failed update."""

    def __init__(self, module: nn.Module, federation: Federation) -> None:
        self.model = FlatModule(module)
        self._federation = federation

    def answer(self, task: Task, vector: Tensor, buffers: Buffers, pace: Tensor | None = None) -> Update:
        """Do a task from the server's vector and buffers."""
        context = Context(self.model, task.buffers or buffers, task.client, task.seed, pace)
        torch.manual_seed(derive(task.seed, "torch"))  # dropout and the like in the user's model
        try:
            return task.work(vector, self._shard(task), context)
        except Exception as error:  # whatever a client does wrong must not stop the round
            return Update(task.client, failure=f"{type(error).__name__}: {' '.join(str(error).split())}")

    def _shard(self, task: Task) -> Shard:
        if task.on == "test":
            return self._federation.test
        if task.on == "client_test" and self._federation.client_tests is not None:
            return self._federation.client_tests[task.client]
        return self._federation.clients[task.client]
