"""FedAdam."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._adaptive import Adaptive
from fedpace.server.optimizers._optimizer import optimizers


@optimizers.register("adam")
class ServerAdam(Adaptive):
    """FedAdam: v = ``beta2`` · v + (1 − ``beta2``) · Δ² (Reddi et al., 2021).

    ``bias_correction`` multiplies step t by √(1 − β₂ᵗ) / (1 − β₁ᵗ): ``kingma`` (Kingma & Ba, 2015, before Section 2.1)
    counts t from 1, ``flower`` from 2, because Flower adds one to a round number that begins at one. Reddi et al. do
    ``none``. Both corrections assume ``v0`` = ``zero``.
    """

    beta2: float = Field(0.99, ge=0, lt=1)
    bias_correction: Literal["none", "kingma", "flower"] = "none"

    def direction(self, update: Tensor, state: dict[str, Tensor]) -> Tensor:
        """The quotient m / (√v + ε), corrected."""
        found = super().direction(update, state)
        if self.bias_correction == "none":
            return found
        steps = state.setdefault("steps", torch.zeros(1, dtype=torch.int64)).add_(1)
        t = int(steps) + (self.bias_correction == "flower")
        return found.mul_(sqrt(1 - self.beta2**t) / (1 - self.beta1**t))

    def follow(self, second: Tensor, update: Tensor) -> None:
        """Move towards Δ² by a share of the distance."""
        second.mul_(self.beta2).addcmul_(update, update, value=1 - self.beta2)
