"""FedProx: local training that is drawn back to where it started."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedpace.client import Context, Correction
from fedpace.methods._method import Method, methods


@methods.register("proximal")
class Proximal(Method):
    """Local training of the loss plus (μ/2)‖θᵢ − θ‖² (Li et al., 2020). With ``mu`` = 0 it is FedAvg's."""

    by_examples: ClassVar[bool] = True
    in_phases: ClassVar[bool] = True

    mu: float = Field(0.01, ge=0, allow_inf_nan=False)

    def correction(self, start: Tensor, context: Context) -> Correction | None:
        """Add μ(θᵢ − θ)."""

        def correct(gradient: Tensor, here: Tensor) -> None:
            gradient.add_(here - start, alpha=self.mu)

        return correct if self.mu else None
