"""What client work is: a function of the server's vector, the client's shard and a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from pydantic import Field
from torch import Tensor, nn

from fedpace.core import Buffers, FlatModule, Layout, Named, Registry, ServerHalf, Tensors, Update, torch_stream
from fedpace.data import Shard


@dataclass(frozen=True)
class Context:
    """What the worker lends to one piece of work: its resident model, buffers and a seed.

    All randomness comes from ``seed``, which the engine derives from the run, the round and the client. Hence the
    result depends neither on the worker nor on what it did before. ``extras`` came from the server along with θ (a
    ``pace`` for local steps, SCAFFOLD's ``control``), ``state`` is what this client kept from its last turn, and
    ``training`` are its training examples, whichever it is asked to work on.
    """

    model: FlatModule
    buffers: Buffers
    client: int
    seed: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    state: Mapping[str, Tensor] = field(default_factory=dict)
    training: Shard | None = None


class ClientWork(Named, ABC):
    """Local work of one client in one round. Parameters only, no state."""

    @abstractmethod
    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Start at ``vector`` and answer with an update whose tensors may be views of the resident model."""

    def at(self, progress: float) -> ClientWork:
        """The work to do when so much of the run is over (0 to 1): usually the same."""
        return self

    def prepare(self, module: nn.Module) -> nn.Module:
        """The module that clients train: the user's, perhaps with something beside it."""
        return module

    def layout(self, module: nn.Module) -> Layout:
        """Which of the module's tensors are shared: usually all."""
        return Layout.of(module)

    def ruled(self, layout: Layout) -> Layout:
        """The shared tensors that the stage's rule aggregates; the others are averaged by samples. Usually all."""
        return layout.shared

    def first_state(self, model: FlatModule) -> Tensors:
        """What a client keeps before its first turn: usually nothing."""
        return {}

    def evaluation(self) -> ClientWork | None:
        """How each client measures a model of its own; ``None`` where there is but one model for all."""
        return None

    def server_half(self, layout: Layout, population: int) -> ServerHalf | None:
        """The server's half of this work, for a model and the number of all clients; most work has none."""
        return None


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
        per_epoch = self._steps_per_epoch(shard)
        for step in range(self.steps(shard)):
            if step % per_epoch == 0:
                order = torch.randperm(len(shard), generator=generator)
            start = step % per_epoch * self.batch
            yield shard.batch(order[start : start + self.batch])

    def steps(self, shard: Shard) -> int:
        """How many batches that will be."""
        steps = self.epochs * self._steps_per_epoch(shard)
        return min(steps, self.max_steps or steps)

    def _steps_per_epoch(self, shard: Shard) -> int:
        return max(len(shard) // self.batch, 1)


works: Registry[ClientWork] = Registry("client work", ClientWork)
