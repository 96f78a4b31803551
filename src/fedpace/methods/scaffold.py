"""SCAFFOLD: local training whose gradients are corrected for the client's drift."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedpace.client import Context, Correction, Gradient
from fedpace.core import FlatModule, Layout, ServerSide, Tensors, Update
from fedpace.data import Shard
from fedpace.methods._method import Method, methods

_CONTROL = "control"


@methods.register("scaffold")
class Scaffold(Method):
    """Steps along ∇L − cᵢ + c, where cᵢ is the client's control variate and c their mean (Karimireddy et al., 2020).

    After K steps from θ to y a client's new control is, by ``option``:

    * ``II``: cᵢ − c + (θ − y) / (K·lr), free of charge, but right only for plain SGD: momentum and Adam make steps of
      another length, and are refused.
    * ``I``: the mean gradient at θ over the same batches: one more pass.

    The server adds the changes of the controls, divided by the number of all clients, to c; updates are averaged as
    ever (the paper does it uniformly). All controls begin at zero, so the first round is FedAvg's.
    Cost: the client keeps a vector, and one more travels each way.
    """

    in_phases: ClassVar[bool] = True

    option: Literal["I", "II"] = "II"
    optimizer: str = "sgd"
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _steps_are_gradients(self) -> Scaffold:
        plain = self.optimizer == "sgd" and not self.momentum and self.clip is None and not self.options
        if self.option == "II" and not plain:
            found = f"momentum = {self.momentum:g}" if self.momentum else "clipping" if self.clip else self.optimizer
            raise ValueError(
                f"option II takes the mean gradient from the way that was gone, (θ − y) / (K·lr), which is wrong with "
                f"{found}: expected optimizer = 'sgd' with momentum = 0, or option = 'I'"
            )
        return self

    def first_state(self, model: FlatModule) -> Tensors:
        """A control of zeros."""
        return {_CONTROL: torch.zeros_like(model.vector)}

    def answer(self, vector: Tensor, shard: Shard, context: Context, loss: float, kept: Tensors) -> Update:
        """Renew the client's control, and send its change along."""
        common, own = _controls(vector, context)
        update = super().answer(vector, shard, context, loss, kept)
        assert update.vector is not None  # training ends with a vector or an error
        renewed = own - common - update.vector / (ceil(self.steps(shard) / self.accumulate) * self.lr)
        if self.option == "I":
            buffers = None if update.buffers is None else update.buffers.clone()  # the next pass overwrites them
            gradient = Gradient(epochs=self.epochs, batch=self.batch, max_steps=self.max_steps)
            minus = gradient(vector, shard, context).vector
            assert minus is not None
            renewed, update = -minus, replace(update, buffers=buffers)
        return replace(update, extras={_CONTROL: renewed - own}, state={_CONTROL: renewed})

    def correction(self, start: Tensor, context: Context) -> Correction:
        """Add c − cᵢ."""
        common, own = _controls(start, context)
        drift = common - own

        def correct(gradient: Tensor, here: Tensor) -> None:
            gradient.add_(drift)

        return correct

    def server_side(self, layout: Layout, population: int) -> ServerSide:
        """The mean control c."""
        return _MeanControl(layout.size, population)


def _controls(vector: Tensor, context: Context) -> tuple[Tensor, Tensor]:
    """The server's control and the client's own; before the first turn they are zero."""
    zero = torch.zeros_like(vector)
    return context.extras.get(_CONTROL, zero), context.state.get(_CONTROL, zero)


class _MeanControl(ServerSide):
    def __init__(self, size: int, population: int) -> None:
        super().__init__({_CONTROL: torch.zeros(size)}, {_CONTROL: (size,)})
        self._population = population

    def learn(self, update: Update) -> None:
        """Add Δcᵢ / M."""
        self.memory[_CONTROL].add_(update.extras[_CONTROL], alpha=1 / self._population)
