"""The opposite of what an attacker found, and more of it."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("sign_flip")
class SignFlip(Attack):
    """Each attacker sends −``scale`` times its own update."""

    scale: float = Field(10.0, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """−scale · uᵢ."""
        return -self.scale * own
