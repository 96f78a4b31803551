"""What client work is: a function of the server's vector, the client's shard and a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from fedpace.core import Buffers, FlatModule, Named, Registry, Update, torch_stream
from fedpace.data import Shard


@dataclass(frozen=True)
class Context:
    """What the worker lends to one piece of work: its resident model, the server's buffers, a seed, perhaps a pace.

    All randomness comes from ``seed``, which the engine derives from the run, the round and the client. Hence the
    result depends neither on the worker nor on what it did before. ``pace`` scales each coordinate of a local step.
    """

    model: FlatModule
    buffers: Buffers
    client: int
    seed: int
    pace: Tensor | None = None


class ClientWork(Named, ABC):
    """Local work of one client in one round. Stateless: parameters only."""

    @abstractmethod
    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Start at ``vector`` and answer with an update whose tensors may be views of the resident model."""


class BatchedWork(ClientWork):
    """Work that goes over the shard in random mini-batches."""

    epochs: int = Field(2, ge=1)
    batch: int = Field(32, ge=1)
    max_steps: int | None = Field(100, ge=1)

    def batches(self, shard: Shard, context: Context) -> Iterator[tuple[Tensor, Tensor]]:
        """At most ``max_steps`` batches of ``epochs`` passes, in an order that the context's seed fixes.

        The last incomplete batch of a pass is dropped, except where it is the only one: statistics of two or three
        images would unsettle BatchNorm, but a client with few images must still train.
        """
        generator = torch_stream(context.seed, "batches")
        per_epoch = max(len(shard) // self.batch, 1)
        steps = min(self.epochs * per_epoch, self.max_steps or self.epochs * per_epoch)
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(shard), generator=generator)
            start = step % per_epoch * self.batch
            yield shard.batch(order[start : start + self.batch])


works: Registry[ClientWork] = Registry("client work", ClientWork)
