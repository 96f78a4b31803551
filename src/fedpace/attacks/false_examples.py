"""Claiming more examples than one has."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("false_examples")
class FalseExamples(Attack):
    """An attacker sends minus its update and claims ``factor`` times as many examples: weighted means are its own."""

    factor: float = Field(1e6, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """−uᵢ: no longer than an honest one."""
        return -own

    def claimed(self, examples: int) -> int:
        """Too many."""
        return int(examples * self.factor)
