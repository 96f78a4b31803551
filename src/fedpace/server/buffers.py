"""What happens to buffers (BatchNorm statistics) when models are averaged. No rule, mask or optimizer touches them."""

from __future__ import annotations

from typing import Literal

import torch

from fedpace.core import Buffers, devices

BufferPolicy = Literal["weighted_mean", "mean", "first", "local", "keep_server"]


class BufferStream:
    """Collects the clients' buffers under a policy; floats are averaged in float64, integers take their maximum.

    They are few, so the host does it, and every device has the same buffers to the bit.

    ``weighted_mean`` weights by examples, ``mean`` counts clients alike, ``first`` takes the first client's. With
    ``local`` buffers never leave a client and with ``keep_server`` they are not sent: the server's stay as they are.
    """

    def __init__(self, policy: BufferPolicy) -> None:
        self.policy = policy
        self._floats: torch.Tensor | None = None
        self._integers: torch.Tensor | None = None
        self._total = 0.0

    def add(self, buffers: Buffers | None, examples: float) -> None:
        """Take one client's buffers."""
        if buffers is None or self.policy in ("local", "keep_server"):
            return
        buffers = buffers.to(devices.HOST)
        if self._floats is None or self._integers is None:
            self._floats = torch.zeros(len(buffers.floats), dtype=torch.float64)
            self._integers = buffers.integers.clone()
        elif self.policy == "first":
            return
        weight = float(examples) if self.policy == "weighted_mean" else 1.0
        self._total += weight
        self._floats.add_(buffers.floats.double(), alpha=weight)
        torch.maximum(self._integers, buffers.integers, out=self._integers)

    def finish(self, server: Buffers) -> None:
        """Write the result into the server's buffers."""
        if self._floats is not None and self._integers is not None:
            server.floats.copy_(self._floats.div_(self._total))
            server.integers.copy_(self._integers)
