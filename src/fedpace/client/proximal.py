"""FedProx: local training that is drawn back to where it started."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedpace.client._work import Context, works
from fedpace.client.sgd import LocalSGD


@works.register("proximal")
class Proximal(LocalSGD):
    """Local training of the loss plus (μ/2)‖θᵢ − θ‖² (Li et al., 2020). With μ = 0 it is FedAvg's."""

    mu: float = Field(0.01, ge=0, allow_inf_nan=False)

    def correct(self, gradient: Tensor, here: Tensor, start: Tensor, context: Context) -> None:
        """Add μ(θᵢ − θ)."""
        if self.mu:
            gradient.add_(here - start, alpha=self.mu)
