"""A whole number for each coordinate, and a scale for each block of them."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.wire._blocks import BLOCK, count, in_blocks, scaled
from fedpace.wire._wire import Lossy, bits, wires

STEPS = 127


@wires.register("int8")
class Int8(Lossy):
    """A byte a coordinate: the nearest multiple of 1/127 of its ``block``'s largest value (Dettmers et al., 2022).

    A value is wrong by at most 1/254 of the largest one of its block. What is smaller than that becomes zero, until
    residuals have added up to more.

    Parameters: ``block``, how many coordinates share a scale of 4 bytes; ``residual``.

    >>> wire = Int8()
    >>> wire.decode(wire.encode(torch.tensor([1.0, 0.003, -0.5]), seed=0), 3)
    tensor([ 1.0000,  0.0000, -0.5039])
    """

    block: int = Field(BLOCK, ge=1)

    def bytes_for(self, size: int) -> int:
        """One each, and the scales."""
        return size + 4 * count(size, self.block)

    def encode(self, vector: Tensor, seed: int) -> Tensor:
        """Scales, then whole numbers. Values that are not finite do not arrive finite."""
        scales, numbers = [vector[:0]], [torch.empty(0, dtype=torch.int8)]
        for rows in in_blocks(vector, self.block):
            largest = torch.maximum(rows.amax(dim=1, keepdim=True), -rows.amin(dim=1, keepdim=True))
            # A little less than exact, or 127 times the scale could be infinite.
            scale = torch.nextafter(largest / STEPS, torch.zeros(()))
            steps = rows.div(scale).round_().clamp_(-STEPS, STEPS).nan_to_num_(0.0)
            scales.append(scale.flatten())
            numbers.append(steps.to(torch.int8).flatten())
        return torch.cat([bits(torch.cat(scales), torch.uint8), bits(torch.cat(numbers), torch.uint8)])

    def decode(self, data: Tensor, size: int) -> Tensor:
        """Scale times number."""
        scales, numbers = data.split([4 * count(size, self.block), size])  # type: ignore[no-untyped-call]
        return scaled(numbers.view(torch.int8), bits(scales, torch.float32), self.block)
