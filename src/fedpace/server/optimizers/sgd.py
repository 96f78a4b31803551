"""Server SGD."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._optimizer import ServerOptimizer, optimizers


@optimizers.register("sgd")
class ServerSGD(ServerOptimizer):
    """θ += ``lr`` · v with v = ``momentum`` · v + Δ (FedAvg at lr 1 without momentum; FedAvgM with it)."""

    momentum: float = Field(0.0, ge=0, lt=1)

    def direction(self, update: Tensor, state: dict[str, Tensor]) -> Tensor:
        """The velocity v."""
        if not self.momentum:
            return update
        velocity = state.setdefault("momentum", torch.zeros_like(update))
        return velocity.mul_(self.momentum).add_(update)
