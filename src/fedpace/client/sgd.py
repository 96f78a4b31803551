"""Local training."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.client._work import BatchedWork, Context, works
from fedpace.core import Update
from fedpace.data import Shard


@works.register("sgd")
class LocalSGD(BatchedWork):
    """A few epochs of Adam or SGD from θ at the context's pace; the update is θᵢ − θ. Optimiser state starts anew.

    Defaults are FedPACE's: Adam at 1e-3 with weight decay 1e-4, two epochs of at most 100 steps, batches of 32.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train on the client's batches."""
        model = context.model
        model.load(vector, context.buffers)
        optimizer = self._optimizer(model.vector, model.gradient)
        losses = []
        for inputs, labels in self.batches(shard, context):
            model.gradient.zero_()
            loss = F.cross_entropy(model.module(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self._step(optimizer, model.vector, context.pace)
            losses.append(loss.item())
        metrics = {"loss": sum(losses) / len(losses)}
        return Update(context.client, model.vector - vector, len(shard), metrics, model.buffers)

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, vector: Tensor, pace: Tensor | None) -> None:
        """One step, each coordinate of it scaled by its pace (scaling gradients would not slow Adam down)."""
        before = vector.clone() if pace is not None else vector
        optimizer.step()
        if pace is not None:
            vector.sub_(before).mul_(pace).add_(before)

    def _optimizer(self, vector: Tensor, gradient: Tensor) -> torch.optim.Optimizer:
        """An optimiser over the one flat parameter: a fused step instead of one per tensor."""
        parameter = nn.Parameter(vector)
        parameter.grad = gradient
        if self.optimizer == "adam":
            return torch.optim.Adam([parameter], lr=self.lr, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(
            [parameter], lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )
