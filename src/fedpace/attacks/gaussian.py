"""Noise instead of an update."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks, noise


@attacks.register("gaussian")
class Gaussian(Attack):
    """Independent normal numbers, ``scale`` times as long as an honest update is in the mean."""

    scale: float = Field(10.0, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """Noise of that length."""
        return noise(honest, own, self.scale, generator)
