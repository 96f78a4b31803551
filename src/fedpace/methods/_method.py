"""What a method is: how clients train, what of the model is shared, and the server's side of it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import SerializeAsAny
from torch import Tensor, nn

from fedpace.client import ClientWork, Context, Correction, LocalTraining, Loss, TrainingSettings, works
from fedpace.core import FlatModule, Layout, Named, Registry, ServerSide, Tensors, Update, by_name, call, devices
from fedpace.data import Shard
from fedpace.tasks import Task


class Method(TrainingSettings, Named):
    """How clients train and what the server remembers of it. A method states only in what it differs from FedAvg.

    What a client does in its turn is :meth:`turn`; executors and Flower's nodes are given it as :meth:`work`. The steps
    of a turn are a :class:`LocalTraining` of its own, with the method's loss and correction.
    """

    personal: ClassVar[bool] = False  # whether each client has a model of its own, with which it is measured
    by_examples: ClassVar[bool] = False  # whether a turn uses examples for nothing but the gradients of its steps

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

    def turn(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train from θ = ``vector`` at the context's pace; the update is θᵢ − θ. Optimizer state starts anew."""
        model = context.model
        model.start_from(vector, context.buffers)
        loss = self.training(vector, shard, context).run()
        return Update(context.client, model.change_since(vector), len(shard), {"loss": loss}, model.buffers)

    def training(self, start: Tensor, shard: Shard, context: Context) -> LocalTraining:
        """The steps of a turn that began at θ = ``start``, from which some methods do not want to stray."""
        loss = devices.computed(self.loss_of(start, shard, context), context.model.device, self.precision)
        return LocalTraining(self, shard, context, loss, self.correction(start, context))

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """What the steps of this turn make smaller: the task's loss."""
        return lambda module, inputs, targets: context.task.loss(call(module, inputs), targets)

    def correction(self, start: Tensor, context: Context) -> Correction | None:
        """How gradients of this turn are changed before each step; plain training changes nothing."""
        return None


methods: Registry[Method] = Registry("method", Method)


@works.register("turn")
class MethodTurn(ClientWork):
    """A turn of a method."""

    method: SerializeAsAny[Annotated[Method, by_name(methods)]]

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Do it."""
        return self.method.turn(vector, shard, context)
