"""Local training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.client._work import BatchedWork, Context, works
from fedpace.client.rates import Constant, Rate, rates
from fedpace.core import FlatModule, Layout, Update, by_name
from fedpace.data import Shard


class Steps(Protocol):
    """What local training asks of an optimizer."""

    def step(self) -> Any:
        """Move the model by the gradient that it holds."""


@works.register("sgd")
class LocalSGD(BatchedWork):
    """A few epochs of Adam or SGD from θ at the context's pace; the update is θᵢ − θ. Optimiser state starts anew.

    Defaults are FedPACE's: Adam at 1e-3 with weight decay 1e-4, two epochs of at most 100 steps, batches of 32.
    ``rate`` says how the learning rate changes over the rounds.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    rate: SerializeAsAny[Annotated[Rate, by_name(rates, "constant")]] = Constant()

    def at(self, progress: float) -> LocalSGD:
        """With the learning rate of this moment."""
        factor = self.rate.factor(progress)
        return self if factor == 1 else self.model_copy(update={"lr": self.lr * factor})

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train on the client's batches."""
        model = context.model
        model.load(vector, context.buffers)
        loss = self.train(shard, context, vector)
        return Update(context.client, model.vector - vector, len(shard), {"loss": loss}, model.buffers)

    def train(
        self,
        shard: Shard,
        context: Context,
        start: Tensor,
        part: Layout | None = None,
        optimizer: Steps | None = None,
    ) -> float:
        """Go over the batches from where the resident model stands, changing all or a ``part`` of it; the mean loss.

        ``start`` is θ, from which some methods do not want to stray; ``optimizer`` replaces the one of the settings.
        """
        model = context.model
        part = part or model.layout
        optimizer = optimizer or self._optimizer(model, model.layout.runs(part))
        losses = []
        with model.only(part):
            for inputs, labels in self.batches(shard, context):
                model.gradient.zero_()
                loss = self.loss(model.module, inputs, labels, context)
                loss.backward()  # type: ignore[no-untyped-call]
                self.correct(model.gradient, model.vector, start, context)
                self._step(optimizer, model.vector, context.extras.get("pace"))
                losses.append(loss.item())
        return sum(losses) / len(losses)

    def loss(self, module: nn.Module, inputs: Tensor, labels: Tensor, context: Context) -> Tensor:
        """What a step makes smaller."""
        return F.cross_entropy(module(inputs), labels)

    def correct(self, gradient: Tensor, here: Tensor, start: Tensor, context: Context) -> None:
        """Change a batch's gradient in place before the step; ``start`` is θ. Plain training changes nothing."""

    @staticmethod
    def _step(optimizer: Steps, vector: Tensor, pace: Tensor | None) -> None:
        """One step, each coordinate of it scaled by its pace (scaling gradients would not slow Adam down)."""
        before = vector.clone() if pace is not None else vector
        optimizer.step()
        if pace is not None:
            vector.sub_(before).mul_(pace).add_(before)

    def _optimizer(self, model: FlatModule, parts: Sequence[slice]) -> torch.optim.Optimizer:
        """An optimiser over parts of the flat vector: a fused step instead of one per tensor."""
        parameters = [nn.Parameter(model.vector[part]) for part in parts]
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = model.gradient[part]
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(
            parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )
