"""Local training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Protocol

import torch
from pydantic import Field, JsonValue, SerializeAsAny, field_validator, model_validator
from torch import Tensor, nn

from fedpace.client._work import BatchedWork, Context, Method, methods
from fedpace.client.optimizers import check_optimizer, make_optimizer, takes
from fedpace.client.rates import Constant, Rate, rates
from fedpace.core import FlatModule, Inputs, Layout, Precision, Update, by_name, call, devices
from fedpace.data import Shard

Loss = Callable[[nn.Module, Inputs, Tensor], Tensor]
"""What a step makes smaller, of a batch."""

Correction = Callable[[Tensor, Tensor], None]
"""Changes a batch's gradient in place before the step; also given where the model stands."""


class Steps(Protocol):
    """What local training asks of an optimizer."""

    def step(self) -> Any:
        """Move the model by the gradient that it holds."""


@methods.register("sgd")
class LocalSGD(BatchedWork, Method):
    """A few epochs from θ at the context's pace; the update is θᵢ − θ. Optimizer state starts anew.

    Defaults are FedPACE's: Adam at 1e-3 with weight decay 1e-4, two epochs of at most 100 batches of 32.

    Parameters: ``optimizer``, any of ``torch.optim`` by name, with further parameters of its own in ``options``;
    ``rate``, how the learning rate changes over the rounds; ``clip``, the largest norm of a gradient; ``accumulate``,
    how many batches are averaged for one step; ``precision``, in which losses are computed: parameters, gradients
    and all that is measured stay float32.
    """

    optimizer: str = "adam"
    options: dict[str, JsonValue] = Field(default_factory=dict)
    lr: float = Field(1e-3, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    rate: SerializeAsAny[Annotated[Rate, by_name(rates, "constant")]] = Constant()
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    accumulate: int = Field(1, ge=1)
    precision: Precision = "float32"

    @field_validator("optimizer")
    @classmethod
    def _in_small_letters(cls, name: str) -> str:
        return name.lower()

    @model_validator(mode="after")
    def _known_to_torch(self) -> LocalSGD:
        # The first optimizer that torch makes costs a second of imports: plain ones are checked by their fields.
        if self.options or self.optimizer not in ("adam", "sgd") or (self.momentum and self.optimizer == "adam"):
            check_optimizer(self.optimizer, self._settings() | self.options)
        return self

    def _settings(self) -> dict[str, Any]:
        """What nearly every optimizer has a name for."""
        known = {"lr": self.lr, "weight_decay": self.weight_decay}
        return known | {"momentum": self.momentum} if self.momentum or takes(self.optimizer, "momentum") else known

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
        *,
        optimizer: Steps | None = None,
        epochs: int | None = None,
        batch: int | None = None,
    ) -> float:
        """Go over the batches from where the resident model stands, changing all or a ``part`` of it; the mean loss.

        ``start`` is θ, from which some methods do not want to stray; ``optimizer``, ``epochs`` and ``batch`` replace
        those of the settings.
        """
        model = context.model
        part = part or model.layout
        optimizer = optimizer or self._optimizer(model, model.layout.runs(part))
        loss_of, correct = self.computed_loss(start, shard, context), self.correction(start, context)
        pace = _pace(context)
        losses = []
        with model.only(part):
            batches = self.training_batches(shard, context, epochs=epochs, batch=batch)
            for group in _groups(batches, self.accumulate):
                model.gradient.zero_()
                for inputs, targets in group:
                    loss = loss_of(model.module, inputs, targets)
                    devices.backward(loss, model.gradient, self.precision)
                    losses.append(loss.item())
                if len(group) > 1:
                    model.gradient.div_(len(group))
                if correct is not None:
                    correct(model.gradient, model.vector)
                if self.clip is not None:
                    model.gradient.mul_((self.clip / model.gradient.norm().clamp(min=1e-12)).clamp(max=1))
                self._step(optimizer, model.vector, pace)
        return sum(losses) / len(losses)

    def computed_loss(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """The same loss as :meth:`loss_of`, computed in the precision of the settings."""
        return devices.computed(self.loss_of(start, shard, context), context.model.device, self.precision)

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """What the steps of this turn make smaller: the task's loss. ``start`` is θ."""
        return lambda module, inputs, targets: context.task.loss(call(module, inputs), targets)

    def correction(self, start: Tensor, context: Context) -> Correction | None:
        """How gradients of this turn are changed before each step; plain training changes nothing."""
        return None

    @staticmethod
    def _step(optimizer: Steps, vector: Tensor, pace: Tensor | None) -> None:
        """One step, each coordinate of it scaled by its pace (scaling gradients would not slow Adam down)."""
        before = vector.clone() if pace is not None else vector
        optimizer.step()
        if pace is not None:
            vector.sub_(before).mul_(pace).add_(before)

    def _optimizer(self, model: FlatModule, parts: Sequence[slice]) -> torch.optim.Optimizer:
        """An optimizer over parts of the flat vector: a fused step instead of one per tensor."""
        parameters = [nn.Parameter(model.vector[part]) for part in parts]
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = model.gradient[part]
        return make_optimizer(self.optimizer, parameters, self._settings() | self.options)


def _groups(batches: Iterator[tuple[Inputs, Tensor]], size: int) -> Iterator[list[tuple[Inputs, Tensor]]]:
    """Batches in groups of ``size``; the last may be smaller."""
    while group := list(islice(batches, size)):
        yield group


def _pace(context: Context) -> Tensor | None:
    """The pace of every coordinate: the server's for what is shared, 1 for what is personal."""
    layout, sent = context.model.layout, context.extras.get("pace")
    if sent is None or not layout.personal:
        return sent
    whole = torch.ones_like(context.model.vector)
    layout.put_shared(whole, sent)
    return whole
