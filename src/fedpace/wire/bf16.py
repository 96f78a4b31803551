"""The upper half of each number."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.wire._wire import Lossy, bits, wires

LARGEST = torch.finfo(torch.bfloat16).max


@wires.register("bf16")
class BF16(Lossy):
    """Two bytes a coordinate: float32's range with 8 bits of precision, rounded to nearest, ties to even.

    A value is wrong by at most 1/256 of itself.

    >>> wire = BF16()
    >>> wire.decode(wire.encode(torch.tensor([1.0, 1.001, -3.1]), seed=0), 3)
    tensor([ 1.0000,  1.0000, -3.0938])
    """

    def bytes_for(self, size: int) -> int:
        """Two each."""
        return 2 * size

    def encode(self, vector: Tensor, seed: int) -> Tensor:
        """Round; what would become infinite becomes the largest number."""
        return bits(vector.clamp(-LARGEST, LARGEST).to(torch.bfloat16), torch.uint8)

    def decode(self, data: Tensor, size: int) -> Tensor:
        """Exact."""
        return bits(data, torch.bfloat16).float()
