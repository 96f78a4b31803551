"""FedYogi."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._adaptive import Adaptive
from fedpace.server.optimizers._optimizer import optimizers


@optimizers.register("yogi")
class ServerYogi(Adaptive):
    """FedYogi: v −= (1 − ``beta2``) · Δ² · sgn(v − Δ²): forgets more slowly than Adam (Reddi et al., 2021)."""

    lr: float = Field(0.01, gt=0, allow_inf_nan=False)  # Flower's
    beta2: float = Field(0.99, ge=0, lt=1)

    def follow(self, second: Tensor, update: Tensor) -> None:
        """Move towards Δ² by a share of Δ²."""
        squared = update.square()
        second.addcmul_(squared, (second - squared).sign_(), value=self.beta2 - 1)
