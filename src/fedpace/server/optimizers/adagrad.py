"""FedAdagrad."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedpace.server.optimizers._adaptive import Adaptive
from fedpace.server.optimizers._optimizer import optimizers


@optimizers.register("adagrad")
class ServerAdagrad(Adaptive):
    """FedAdagrad: v += Δ², steps shorten where much has been moved (Reddi et al., 2021). No momentum by default."""

    beta1: float = Field(0.0, ge=0, lt=1)

    def follow(self, second: Tensor, update: Tensor) -> None:
        """Add Δ²."""
        second.addcmul_(update, update)
