"""The server's side of an algorithm that sends more than parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from fedpace.core.update import Tensors, Update


class ServerSide(ABC):
    """What the server remembers, sends along with θ, and learns from what clients send along with their updates.

    All of it lies on the host, wherever clients train and updates are aggregated.

    Attributes:
        memory: Everything that it remembers; a checkpoint holds it.
        expects: Names and shapes of what clients send along.

    """

    def __init__(self, memory: Tensors, expects: Mapping[str, tuple[int, ...]]) -> None:
        self.memory = memory
        self.expects = dict(expects)

    def fits(self, extras: Mapping[str, Tensor]) -> bool:
        """Whether a client sent along what it should."""
        return {name: tuple(tensor.shape) for name, tensor in extras.items()} == self.expects

    def sends(self) -> Tensors:
        """What every client is sent: by default the whole memory."""
        return self.memory

    def sends_to(self, client: int) -> Tensors:
        """What this client alone is sent: by default nothing."""
        return {}

    @abstractmethod
    def learn(self, update: Update) -> None:
        """Take in what one client sent along. Clients come in ascending order."""

    def finish(self) -> None:  # noqa: B027  # most have nothing left to do
        """Nobody else will send anything in this round."""
