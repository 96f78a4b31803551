"""What a server optimizer is: it moves θ by the aggregated update and remembers what it needs in named tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field
from torch import Tensor

from fedpace.core import Named, Registry

_BLOCK = 1 << 16


class ServerOptimizer(Named, ABC):
    """Stateless parameters; the state is a dictionary of tensors that the server saves with its checkpoint."""

    lr: float = Field(1.0, gt=0, allow_inf_nan=False)

    def step(self, vector: Tensor, update: Tensor, state: dict[str, Tensor], mask: Tensor | None = None) -> None:
        """Move ``vector`` in place along ``update``, a direction of descent.

        A ``mask`` multiplies the step and nothing else: what is remembered comes from the unmasked update, so a
        coordinate that the mask stops still gathers momentum (GMA, Algorithm 2).
        """
        direction = self.direction(update, state)
        if mask is None:
            vector.add_(direction, alpha=self.lr)
            return
        for start in range(0, len(vector), _BLOCK):  # so the product never needs a whole vector
            part = slice(start, start + _BLOCK)
            vector[part].add_(direction[part] * mask[part], alpha=self.lr)

    @abstractmethod
    def direction(self, update: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Where to go, for a step of ``lr``; ``state`` takes what later steps need.

        The result is only read: it may be ``update`` itself, or a tensor of the state.
        """


optimizers: Registry[ServerOptimizer] = Registry("server optimizer", ServerOptimizer)
