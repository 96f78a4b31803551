"""What a client sends to the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fedpace.core.flat import Buffers


@dataclass
class Update:
    """One client's answer.

    ``vector`` is a direction of descent: θᵢ − θ after local training, or minus the gradient. ``failure`` says why there
    is none. The tensors belong to whoever produced them and may be overwritten when the next answer is asked for.
    """

    client: int
    vector: Tensor | None = None
    examples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    buffers: Buffers | None = None
    failure: str | None = None
