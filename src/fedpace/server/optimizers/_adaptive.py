"""What adaptive server optimizers have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._optimizer import ServerOptimizer


class Adaptive(ServerOptimizer):
    """θ += ``lr`` · m / (√v + ``epsilon``), m = ``beta1`` · m + (1 − ``beta1``) · Δ (Reddi et al., 2021, Algorithm 2).

    How v follows Δ² is what tells the optimizers apart. ``v0`` is where it begins: at ``epsilon_squared`` (Reddi et
    al.) or at ``zero`` (Flower). ``epsilon`` bounds how far small updates are lengthened. State: two vectors.
    """

    lr: float = Field(0.1, gt=0, allow_inf_nan=False)  # Flower's
    beta1: float = Field(0.9, ge=0, lt=1)
    epsilon: float = Field(1e-3, gt=0, allow_inf_nan=False)
    v0: Literal["epsilon_squared", "zero"] = "epsilon_squared"

    def direction(self, update: Tensor, state: dict[str, Tensor]) -> Tensor:
        """The quotient m / (√v + ε), a new tensor."""
        if "first_moment" not in state:
            state["first_moment"] = torch.zeros_like(update)
        if "second_moment" not in state:
            state["second_moment"] = torch.full_like(update, self.epsilon**2 if self.v0 == "epsilon_squared" else 0.0)
        first, second = state["first_moment"], state["second_moment"]
        first.mul_(self.beta1).add_(update, alpha=1 - self.beta1)
        self.follow(second, update)
        root = second.sqrt().add_(self.epsilon)
        return torch.div(first, root, out=root)

    @abstractmethod
    def follow(self, second: Tensor, update: Tensor) -> None:
        """Bring v up to date, in place."""
