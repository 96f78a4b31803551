"""What client work is: a function of the server's vector, the client's shard and a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fedpace.core import (
    Buffers,
    FlatModule,
    Inputs,
    Layout,
    Named,
    Registry,
    ServerSide,
    Tensors,
    Update,
    devices,
    numpy_stream,
    parse,
    torch_stream,
)
from fedpace.data import Shard
from fedpace.tasks import Classification, Task


@dataclass(frozen=True)
class Context:
    """What the worker lends to one piece of work: its resident model, buffers, a seed and the task.

    All randomness comes from ``seed``, which the engine derives from the run, the round and the client. Hence the
    result depends neither on the worker nor on what it did before. ``extras`` came from the server along with θ (a
    ``pace`` for local steps, SCAFFOLD's ``control``) and nothing else is in them; ``state`` is what this client kept
    from its last turn, ``training`` are its training examples, whichever it is asked to work on, and ``task`` says what
    a loss is.
    """

    model: FlatModule
    buffers: Buffers
    client: int
    seed: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    state: Mapping[str, Tensor] = field(default_factory=dict)
    training: Shard | None = None
    task: Task = field(default_factory=Classification)


class ClientWork(Named, ABC):
    """Work of one client in one round. Parameters only, no state."""

    @abstractmethod
    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Start at ``vector`` and answer with an update whose tensors may be views of the resident model."""


class Method(ClientWork):
    """How clients train, what of the model is shared, what each keeps, and the server's side of it all."""

    personal: ClassVar[bool] = False  # whether each client has a model of its own, with which it is measured

    def at(self, progress: float) -> Method:
        """The method when so much of the run is over (0 to 1): usually the same."""
        return self

    def prepare(self, module: nn.Module, seed: int) -> nn.Module:
        """The module that clients train: the user's, perhaps with something beside it, drawn from the run's seed."""
        return module

    def unfit_for(self, task: Task) -> str | None:
        """Why this method cannot learn a task; nothing if it can."""
        return None

    def layout(self, module: nn.Module) -> Layout:
        """Which of the module's tensors are shared: usually all."""
        return Layout.of(module)

    def ruled(self, layout: Layout) -> Layout:
        """The shared tensors that the stage's rule aggregates; the others are averaged by samples. Usually all."""
        return layout.shared

    def first_state(self, model: FlatModule) -> Tensors:
        """What a client keeps before its first turn: usually nothing."""
        return {}

    def evaluation(self) -> ClientWork:
        """How a client measures the model that is its own."""
        raise NotImplementedError

    def server_side(self, layout: Layout, population: int) -> ServerSide | None:
        """The server's side of this work, for a model and the number of all clients; most work has none."""
        return None


class BatchedWork(ClientWork):
    """Work that goes over the shard in random mini-batches."""

    epochs: int = Field(2, ge=1)
    batch: int = Field(32, ge=1)
    max_steps: int | None = Field(100, ge=1)

    def training_batches(
        self, shard: Shard, context: Context, *, epochs: int | None = None, batch: int | None = None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """The batches for local steps: with the data's augmentations, whose randomness the context's seed fixes."""
        rng = numpy_stream(context.seed, "augmentation")
        return self.batches(shard, context, epochs=epochs, batch=batch, rng=rng)

    def batches(
        self,
        shard: Shard,
        context: Context,
        *,
        epochs: int | None = None,
        batch: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """At most ``max_steps`` batches of ``epochs`` passes, in an order that the context's seed fixes.

        The last incomplete batch of a pass is dropped, except where it is the only one: statistics of two or three
        images would unsettle BatchNorm, but a client with few images must still train. Examples are as they are, unless
        there is an ``rng`` to augment them with. Batches lie where the model does.
        """
        return devices.carried(self._on_host(shard, context, epochs, batch, rng), context.model.device)

    def _on_host(
        self, shard: Shard, context: Context, epochs: int | None, batch: int | None, rng: np.random.Generator | None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        generator = torch_stream(context.seed, "batches")
        size = batch or self.batch
        per_epoch = max(len(shard) // size, 1)
        for step in range(self.steps(shard, epochs=epochs, batch=batch)):
            if step % per_epoch == 0:
                order = torch.randperm(len(shard), generator=generator)
            start = step % per_epoch * size
            yield shard.batch(order[start : start + size], rng, padding=context.task.padding)

    def steps(self, shard: Shard, *, epochs: int | None = None, batch: int | None = None) -> int:
        """How many batches that will be."""
        steps = (epochs or self.epochs) * max(len(shard) // (batch or self.batch), 1)
        return min(steps, self.max_steps or steps)


works: Registry[ClientWork] = Registry("client work", ClientWork)
methods: Registry[Method] = Registry("method", Method)


def parse_work(table: Mapping[str, Any]) -> ClientWork:
    """The work or method that a message describes."""
    registry: Registry[Any] = works if table.get("name") in works.names() else methods
    return cast(ClientWork, parse(registry, table))
