"""What a server optimiser is: it moves θ by the aggregated update and remembers what it needs in named tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from fedpace.core import Named, Registry


class ServerOptimizer(Named, ABC):
    """Stateless parameters; the state is a dictionary of tensors that the server saves with its checkpoint."""

    @abstractmethod
    def step(self, vector: Tensor, update: Tensor, state: dict[str, Tensor]) -> None:
        """Move ``vector`` in place along ``update``, a direction of descent."""


optimizers: Registry[ServerOptimizer] = Registry("server optimizer", ServerOptimizer)
