"""Local training: the steps of one turn, and the settings by which they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Self, TypeVar

import torch
from pydantic import Field, JsonValue, SerializeAsAny, field_validator, model_validator
from torch import Tensor, nn

from fedpace.client._work import Context
from fedpace.client.batches import Batches
from fedpace.client.optimizers import check_optimizer, make_optimizer, takes
from fedpace.client.private import Loss, PrivateSteps
from fedpace.client.rates import Constant, Rate, rates
from fedpace.client.steps import AdamSteps, Moved, SGDSteps, Steps
from fedpace.core import FlatModule, Inputs, Layout, Precision, by_name, devices
from fedpace.data import Shard

T = TypeVar("T")
Correction = Callable[[Tensor, Tensor], None]
"""Changes a batch's gradient in place before the step; also given where the model stands."""


class TrainingSettings(Batches):
    """How clients train, whatever the method. Defaults are FedPACE's: Adam, two epochs of at most 100 batches of 32.

    Parameters: ``optimizer``, any of ``torch.optim`` by name, with ``lr``, its learning rate, ``momentum``,
    ``weight_decay``, and further parameters of its own in ``options``; ``rate``, how the learning rate changes over the
    rounds; ``clip``, the largest norm of a gradient; ``accumulate``, how many batches are averaged for one step;
    ``precision``, in which losses are computed: parameters, gradients and all that is measured stay float32;
    ``private``, whether steps hide each example behind noise.
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
    private: PrivateSteps | None = None

    @field_validator("optimizer")
    @classmethod
    def _in_small_letters(cls, name: str) -> str:
        return name.lower()

    @model_validator(mode="after")
    def _known_to_torch(self) -> Self:
        if not self._plain:
            check_optimizer(self.optimizer, self._of_optimizer() | self.options)
        return self

    @property
    def _plain(self) -> bool:
        """Whether steps need no optimizer of torch's."""
        return not self.options and (self.optimizer == "sgd" or (self.optimizer == "adam" and not self.momentum))

    def _of_optimizer(self) -> dict[str, Any]:
        """What nearly every optimizer has a name for."""
        known = {"lr": self.lr, "weight_decay": self.weight_decay}
        return known | {"momentum": self.momentum} if self.momentum or takes(self.optimizer, "momentum") else known

    def at(self, progress: float) -> Self:
        """With the learning rate of the moment when so much of the run is over (0 to 1)."""
        factor = self.rate.factor(progress)
        return self if factor == 1 else self.model_copy(update={"lr": self.lr * factor})

    def steps_on(self, model: Moved, parts: Sequence[slice] = (slice(None),)) -> Steps:
        """What moves parts of the flat vector, or some of its rows: a fused step instead of one per tensor."""
        if self._plain:
            steps = AdamSteps if self.optimizer == "adam" else SGDSteps
            return steps(model, parts, **self._of_optimizer())
        parameters = [nn.Parameter(model.vector[part]) for part in parts]
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = model.gradient[part]
        return make_optimizer(self.optimizer, parameters, self._of_optimizer() | self.options)


@dataclass(frozen=True)
class LocalTraining:
    """Steps of the resident model on a client's batches, in one turn of a method.

    Attributes:
        settings: Optimizer, batches, precision.
        shard: The client's examples.
        context: What the worker lends to this turn.
        loss: What the method makes smaller, computed in the precision of the settings.
        correction: How the method changes gradients before each step; plain training does not.

    """

    settings: TrainingSettings
    shard: Shard
    context: Context
    loss: Loss
    correction: Correction | None = None

    def run(
        self,
        part: Layout | None = None,
        *,
        optimizer: Steps | None = None,
        epochs: int | None = None,
        batch: int | None = None,
    ) -> float:
        """Go over the batches from where the resident model stands, changing all or a ``part`` of it; the mean loss.

        ``optimizer``, ``epochs`` and ``batch`` replace those of the settings.
        """
        settings, model, pace = self.settings, self.context.model, pace_of(self.context)
        part = part or model.layout
        optimizer = optimizer or settings.steps_on(model, model.layout.runs(part))
        private = settings.private
        backward = self.backward if private is None else private.backward(self.loss, self.context.seed)
        losses = []
        with model.only(part):
            batches = settings.training_batches(self.shard, self.context, epochs=epochs, batch=batch)
            for group in in_groups(batches, settings.accumulate):
                model.gradient.zero_()
                losses += [backward(model, *examples) for examples in group]
                if len(group) > 1:
                    model.gradient.div_(len(group))
                descend(settings, model.gradient, model.vector, self.correction, optimizer, pace)
        return sum(losses) / len(losses)

    def backward(self, model: FlatModule, inputs: Inputs, targets: Tensor) -> float:
        """Add a batch's gradient to what the model holds; the batch's loss."""
        loss = self.loss(model.module, inputs, targets)
        devices.backward(loss, model.gradient, self.settings.precision)
        return loss.item()


def pace_of(context: Context) -> Tensor | None:
    """The pace of every coordinate: the server's for what is shared, 1 for what is personal."""
    model, sent = context.model, context.extras.get("pace")
    if sent is None or not model.layout.personal:
        return sent
    whole = torch.ones_like(model.vector)
    model.layout.put_shared(whole, sent)
    return whole


def descend(
    settings: TrainingSettings,
    gradient: Tensor,
    vector: Tensor,
    correction: Correction | None,
    optimizer: Steps,
    pace: Tensor | None,
) -> None:
    """One step from ``vector`` along a batch's gradient; of several clients in rows, one along each gradient."""
    if correction is not None:
        correction(gradient, vector)
    if settings.clip is not None:
        norms = gradient.norm(dim=-1, keepdim=True)
        gradient.mul_((settings.clip / norms.clamp(min=1e-12)).clamp(max=1))
    paced_step(optimizer, vector, pace)


def paced_step(optimizer: Steps, vector: Tensor, pace: Tensor | None) -> None:
    """One step, each coordinate of it scaled by its pace (scaling gradients would not slow Adam down)."""
    before = vector.clone() if pace is not None else vector
    optimizer.step()
    if pace is not None:
        vector.sub_(before).mul_(pace).add_(before)


def in_groups(batches: Iterator[T], size: int) -> Iterator[list[T]]:
    """Batches in groups of ``size``; the last may be smaller."""
    while group := list(islice(batches, size)):
        yield group
