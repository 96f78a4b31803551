"""Server SGD."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._optimizer import ServerOptimizer, optimizers


@optimizers.register("sgd")
class ServerSGD(ServerOptimizer):
    """θ += ``lr`` · v with v = ``momentum`` · v + Δ (FedAvg at lr 1 without momentum; FedAvgM with it)."""

    lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, lt=1)

    def step(self, vector: Tensor, update: Tensor, state: dict[str, Tensor]) -> None:
        """Take one step."""
        if self.momentum:
            velocity = state.setdefault("momentum", torch.zeros_like(vector))
            update = velocity.mul_(self.momentum).add_(update)
        vector.add_(update, alpha=self.lr)
