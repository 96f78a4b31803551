"""Taking part without doing anything."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks, noise


@attacks.register("free_rider")
class FreeRider(Attack):
    """Attackers send noise of ``share`` times an honest update's length, so that it does not look like nothing.

    They harm nobody but by their weight: the aggregate is shorter (Fraboni et al., 2021, disguised free riders).
    """

    share: float = Field(0.1, ge=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """Noise of that length."""
        return noise(honest, own, self.share, generator)
