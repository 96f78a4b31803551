"""Against the direction of the honest."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("inner_product")
class InnerProduct(Attack):
    """All attackers send −``epsilon`` times the mean of the honest (Xie et al., 2020).

    With a small ε they look like honest ones that are nearly done; the aggregate's inner product with the true
    direction falls all the same.
    """

    epsilon: float = Field(0.5, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """−ε · mean."""
        return (-self.epsilon * honest.mean(0)).expand_as(own).clone()
