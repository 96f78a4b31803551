"""Numbers as they are."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedpace.wire._wire import Wire, bits, wires


@wires.register("float32")
class Float32(Wire):
    """Four bytes a coordinate; nothing is lost.

    >>> Float32().bytes_for(1000)
    4000
    """

    lossless: ClassVar[bool] = True

    def bytes_for(self, size: int) -> int:
        """Four each."""
        return 4 * size

    def encode(self, vector: Tensor, seed: int) -> Tensor:
        """The bytes of the numbers."""
        return bits(vector, torch.uint8)

    def decode(self, data: Tensor, size: int) -> Tensor:
        """The numbers of the bytes."""
        return bits(data, torch.float32)
