"""What a client sends to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedpace.core import devices
from fedpace.core.flat import Buffers
from fedpace.core.text import one_line

LONGEST_FAILURE = 200
"""Characters of a failure's text: it is written to records, and a client may send any."""

Tensors = dict[str, Tensor]
T = TypeVar("T")


def with_prefix(prefix: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """The tensors (or arrays) whose names begin so, under the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@dataclass
class Update:
    """One client's answer.

    ``vector`` is a direction of descent: θᵢ − θ after local training, or minus the gradient. ``failure`` says why there
    is none, in one short line. ``extras`` are sent along with the vector (SCAFFOLD's change of control). ``state`` is
    never sent: the client keeps it for its next turn; ``None`` leaves what it kept before. ``norm`` is the vector's,
    once the server's guard has measured it. ``encoded`` are the bytes as which the vector travels, where it does not
    travel as it is; only who sends it needs them. ``discount`` multiplies the update's weight, because it is old;
    whoever carries updates sets it, never the client. The tensors belong to whoever produced them and may be
    overwritten when the next answer is asked for.
    """

    client: int
    vector: Tensor | None = None
    examples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    buffers: Buffers | None = None
    failure: str | None = None
    extras: Tensors = field(default_factory=dict)
    state: Tensors | None = None
    norm: float | None = None
    encoded: Tensor | None = None
    discount: float = 1.0

    def __post_init__(self) -> None:
        if self.failure is not None:
            self.failure = one_line(self.failure)[:LONGEST_FAILURE]

    def owned(self) -> Update:
        """The same answer with tensors of its own, for whoever keeps it while others are asked for."""
        return replace(
            self,
            vector=None if self.vector is None else self.vector.clone(),
            buffers=None if self.buffers is None else self.buffers.clone(),
            extras={name: tensor.clone() for name, tensor in self.extras.items()},
            state=None if self.state is None else {name: tensor.clone() for name, tensor in self.state.items()},
        )

    def to(self, device: torch.device) -> Update:
        """The same answer on a device; what lies there already is not copied."""
        return replace(
            self,
            vector=None if self.vector is None else self.vector.to(device),
            buffers=None if self.buffers is None else self.buffers.to(device),
            extras=devices.moved(self.extras, device),
            state=None if self.state is None else devices.moved(self.state, device),
        )
