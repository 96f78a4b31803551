"""What a method is: how clients train, what of the model is shared, and the server's side of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import SerializeAsAny
from torch import Tensor, nn

from fedpace.client import (
    ClientWork,
    Context,
    Correction,
    LocalTraining,
    Loss,
    Stack,
    StackedTraining,
    TrainingSettings,
    works,
)
from fedpace.core import (
    FlatModule,
    Layout,
    Named,
    Registry,
    ServerSide,
    Tensors,
    Update,
    by_name,
    call,
    derive,
    devices,
)
from fedpace.data import Shard
from fedpace.tasks import Task


@dataclass(frozen=True)
class Phase:
    """Steps of a turn that change a ``part`` of the model.

    ``epochs`` replace those of the settings; one with a ``name`` has batches in an order of its own.
    """

    part: Layout
    epochs: int | None = None
    name: str = ""

    def seeded(self, context: Context) -> Context:
        """With the seed of the phase."""
        return replace(context, seed=derive(context.seed, self.name)) if self.name else context


class Method(TrainingSettings, Named):
    """How clients train and what the server remembers of it. A method states only in what it differs from FedAvg.

    What a client does in its turn is :meth:`turn`; executors and Flower's nodes are given it as :meth:`work`. The steps
    of a turn are a :class:`LocalTraining` of its own, with the method's loss and correction.
    """

    personal: ClassVar[bool] = False  # whether each client has a model of its own, with which it is measured
    by_examples: ClassVar[bool] = False  # whether a turn uses examples for nothing but the gradients of its steps
    in_phases: ClassVar[bool] = False  # whether its turns are no more than the declaration of `stackable` says

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

    def server_side(self, layout: Layout, population: int) -> ServerSide | None:
        """The server's side of this method, for a model and the number of all clients; most methods have none."""
        return None

    def work(self) -> ClientWork:
        """A client's turn, as work."""
        return MethodTurn(method=self)

    def evaluation(self) -> ClientWork:
        """How a client measures the model that is its own."""
        raise NotImplementedError

    @property
    def stackable(self) -> bool:
        """Whether turns of many clients can be one computation.

        They can where a class declares ``in_phases``: a turn is ``load``, ``phases`` of steps on the task's loss, whose
        ``correction`` takes rows, and ``answer``; and whatever is measured is measured on what ``load`` puts together.
        No class inherits that, because it may change what a turn is.
        """
        declared: bool = type(self).__dict__.get("in_phases", False)
        return declared and self.private is None and self.precision == "float32"

    def turn(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train from θ = ``vector`` at the context's pace. Optimizer state starts anew."""
        self.load(vector, context)
        loss, kept = self.fit(vector, shard, context)
        return self.answer(vector, shard, context, loss, kept)

    def turns(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """The turns of many clients at once: the resident model begins and ends each of them, and rows are trained."""
        stack = Stack(shards, contexts)
        self.load_all(vector, stack)
        training = StackedTraining(self, stack, partial(self.correction, vector))
        for phase in self.phases(stack.model.layout):
            losses = training.run(phase.part, [phase.seeded(own) for own in stack.contexts], epochs=phase.epochs)
        for client, (shard, context) in enumerate(zip(shards, contexts, strict=True)):
            row = stack.rows[client]
            stack.model.vector.copy_(stack.vector[row])
            yield self.answer(vector, shard, context, losses[row], {})

    def load(self, vector: Tensor, context: Context) -> None:
        """Bring the resident model to where a client begins: θ."""
        context.model.start_from(vector, context.buffers)

    def load_all(self, vector: Tensor, stack: Stack) -> None:
        """The same for many clients."""
        self.load(vector, stack.contexts[0])
        stack.vector.copy_(vector)

    def phases(self, layout: Layout) -> Sequence[Phase]:
        """Which parts of the model are trained one after another: usually all of it at once."""
        return (Phase(layout),)

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """The phases: the mean loss of the last one, and what the client keeps beside its personal tensors."""
        for phase in self.phases(context.model.layout):
            training = self.training(vector, shard, phase.seeded(context))
            loss = training.run(phase.part, epochs=phase.epochs)
        return loss, {}

    def answer(self, vector: Tensor, shard: Shard, context: Context, loss: float, kept: Tensors) -> Update:
        """What a client sends once the resident model is trained: θᵢ − θ."""
        model = context.model
        return Update(context.client, model.change_since(vector), len(shard), {"loss": loss}, model.buffers)

    def training(self, start: Tensor, shard: Shard, context: Context) -> LocalTraining:
        """The steps of a turn that began at θ = ``start``, from which some methods do not want to stray."""
        loss = devices.computed(self.loss_of(start, shard, context), context.model.device, self.precision)
        return LocalTraining(self, shard, context, loss, self.correction(start, context))

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """What the steps of this turn make smaller: the task's loss."""
        return lambda module, inputs, targets: context.task.loss(call(module, inputs), targets)

    def correction(self, start: Tensor, context: Context) -> Correction | None:
        """How gradients of this turn are changed before each step; plain training changes nothing.

        Of many clients, gradients and what the clients keep are rows.
        """
        return None


methods: Registry[Method] = Registry("method", Method)


@works.register("turn")
class MethodTurn(ClientWork):
    """A turn of a method."""

    method: SerializeAsAny[Annotated[Method, by_name(methods)]]

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Do it."""
        return self.method.turn(vector, shard, context)

    @property
    def stackable(self) -> bool:
        """What the method says."""
        return self.method.stackable

    @property
    def held(self) -> int:
        """A batch."""
        return self.method.batch

    def stacked(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """Do those of many clients at once."""
        return self.method.turns(vector, shards, contexts)
