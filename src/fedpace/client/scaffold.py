"""SCAFFOLD: local training whose gradients are corrected for the client's drift."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedpace.client._work import Context, works
from fedpace.client.gradient import Gradient
from fedpace.client.sgd import LocalSGD
from fedpace.core import Layout, ServerHalf, Update
from fedpace.data import Shard

_CONTROL = "control"


@works.register("scaffold")
class Scaffold(LocalSGD):
    """Steps along ∇L − cᵢ + c, where cᵢ is the client's control variate and c their mean (Karimireddy et al., 2020).

    After K steps from θ to y a client's new control is, by ``option``:

    * ``II``: cᵢ − c + (θ − y) / (K·lr), free of charge, but right only for plain SGD: momentum and Adam make steps of
      another length, and are refused.
    * ``I``: the mean gradient at θ over the same batches: one more pass.

    The server adds the changes of the controls, divided by the number of all clients, to c; updates are averaged as
    ever (the paper does it uniformly). All controls begin at zero, so the first round is FedAvg's.
    Cost: the client keeps a vector, and one more travels each way.
    """

    option: Literal["I", "II"] = "II"
    optimizer: Literal["adam", "sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _steps_are_gradients(self) -> Scaffold:
        if self.option == "II" and (self.momentum or self.optimizer == "adam"):
            found = "Adam" if self.optimizer == "adam" else f"momentum = {self.momentum:g}"
            raise ValueError(
                f"option II takes the mean gradient from the way that was gone, (θ − y) / (K·lr), which is wrong with "
                f"{found}: expected optimizer = 'sgd' with momentum = 0, or option = 'I'"
            )
        return self

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train, then renew the client's control."""
        zero = torch.zeros_like(vector)
        common, own = context.extras.get(_CONTROL, zero), context.state.get(_CONTROL, zero)
        drift = {**context.extras, "drift": common - own}
        update = super().__call__(vector, shard, replace(context, extras=drift))
        assert update.vector is not None  # training ends with a vector or an error
        renewed = own - common - update.vector / (self.steps(shard) * self.lr)
        if self.option == "I":
            buffers = None if update.buffers is None else update.buffers.clone()  # the next pass overwrites them
            gradient = Gradient(epochs=self.epochs, batch=self.batch, max_steps=self.max_steps)
            minus = gradient(vector, shard, context).vector
            assert minus is not None
            renewed, update = -minus, replace(update, buffers=buffers)
        return replace(update, extras={_CONTROL: renewed - own}, state={_CONTROL: renewed})

    def correct(self, gradient: Tensor, here: Tensor, start: Tensor, context: Context) -> None:
        """Add c − cᵢ."""
        gradient.add_(context.extras["drift"])

    def server_half(self, layout: Layout, population: int) -> ServerHalf:
        """The mean control c."""
        return _MeanControl(layout.size, population)


class _MeanControl(ServerHalf):
    def __init__(self, size: int, population: int) -> None:
        super().__init__({_CONTROL: torch.zeros(size)}, {_CONTROL: (size,)})
        self._population = population

    def learn(self, update: Update) -> None:
        """Add Δcᵢ / M."""
        self.memory[_CONTROL].add_(update.extras[_CONTROL], alpha=1 / self._population)
