"""What a server and its worker processes tell each other. Vectors stay behind in rows of shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from safetensors.torch import load, save
from torch import Tensor

from fedpace.core import Tensors, Update, devices
from fedpace.engine.executors._rows import Row
from fedpace.engine.worker import Turn


@dataclass(frozen=True)
class Order:
    """A turn, and the row that its answer goes to. What the client keeps and is sent alone travels as bytes."""

    turn: Turn
    row: int
    state: bytes = b""
    extras: bytes = b""

    @classmethod
    def of(cls, turn: Turn, row: int) -> Order:
        """A turn on its way."""
        if not (turn.state or turn.extras):
            return cls(turn, row)
        return cls(replace(turn, state={}, extras={}), row, packed(turn.state), packed(turn.extras))

    def opened(self) -> Turn:
        """The turn as it was."""
        if not (self.state or self.extras):
            return self.turn
        return replace(self.turn, state=unpacked(self.state), extras=unpacked(self.extras))


@dataclass(frozen=True)
class Orders:
    """Turns that a worker does one after another; ``extras`` go with these and all later ones, until others do."""

    turns: Sequence[Order]
    extras: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """An update as a small message: vector and buffers stay behind in a row."""

    update: Update
    has_vector: bool = False
    has_buffers: bool = False
    extras: bytes = b""
    state: bytes | None = None

    @classmethod
    def split(cls, update: Update, row: Row) -> Answer:
        """Put an update's tensors into its row, to which nothing is copied that was computed there."""
        vector, buffers = update.vector, update.buffers
        if vector is not None:
            if vector.shape != row.vector.shape:
                return cls(Update(update.client, failure=f"wrong shape: {tuple(vector.shape)}"))
            row.vector.copy_(vector)
        if buffers is not None:
            row.buffers.copy_(buffers)
        state = None if update.state is None else packed(update.state)
        small = replace(update, vector=None, buffers=None, extras={}, state=None, encoded=None)
        return cls(small, vector is not None, buffers is not None, packed(update.extras), state)

    def joined(self, row: Row) -> Update:
        """The update with its tensors."""
        return replace(
            self.update,
            vector=row.vector if self.has_vector else None,
            buffers=row.buffers if self.has_buffers else None,
            extras=unpacked(self.extras),
            state=None if self.state is None else unpacked(self.state),
        )


@dataclass(frozen=True)
class Answers:
    """Of the first turns that are not answered yet, in their order, and the seconds that they took."""

    answers: Sequence[Answer]
    seconds: float


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as bytes: through a pipe they would leave a file descriptor behind for each."""
    return save({name: devices.to_host(tensor).contiguous() for name, tensor in tensors.items()}) if tensors else b""


def unpacked(data: bytes) -> Tensors:
    """The tensors again."""
    return load(data) if data else {}
