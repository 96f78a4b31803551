"""The sign of each coordinate, and how large a block of them is in the mean."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedpace.core import numpy_stream
from fedpace.wire._blocks import BLOCK, count, in_blocks, scaled
from fedpace.wire._wire import Lossy, bits, wires


@wires.register("signs")
class Signs(Lossy):
    """A bit a coordinate: sgn(u) · mean |u| of its ``block`` (scaled signSGD: Karimireddy et al., 2019).

    A bit has no zero. A coordinate that is exactly zero gets a sign that the client draws: were it always the same,
    clients that did not move a coordinate would all seem to agree about it. A block of zeros arrives as zeros.

    Parameters: ``block``, how many coordinates share a scale of 4 bytes; ``residual``, without which a run with small
    steps does not converge.

    >>> wire = Signs()
    >>> wire.decode(wire.encode(torch.tensor([1.0, 0.1, -0.4]), seed=0), 3)
    tensor([ 0.5000,  0.5000, -0.5000])
    """

    tells_zero: ClassVar[bool] = False

    block: int = Field(BLOCK, ge=1)

    def bytes_for(self, size: int) -> int:
        """Eight in one, and the scales."""
        return -(-size // 8) + 4 * count(size, self.block)

    def encode(self, vector: Tensor, seed: int) -> Tensor:
        """Scales, then bits. Values that are not finite do not arrive finite, nor does the rest of their block."""
        scales = [vector[:0]]
        for rows in in_blocks(vector, self.block):
            total = torch.linalg.vector_norm(rows, 1, dim=1, dtype=torch.float64)
            scales.append(total.div_(rows.shape[1]).float())
        positive = (vector > 0).numpy()
        zeros = np.flatnonzero(vector.numpy() == 0)
        positive[zeros] = numpy_stream(seed, "signs of zeros").integers(2, size=len(zeros), dtype=bool)
        packed = torch.from_numpy(np.packbits(positive))
        return torch.cat([bits(torch.cat(scales), torch.uint8), packed])

    def decode(self, data: Tensor, size: int) -> Tensor:
        """Scale times sign."""
        scales, packed = data.split([4 * count(size, self.block), -(-size // 8)])  # type: ignore[no-untyped-call]
        signs = torch.from_numpy(np.unpackbits(packed.numpy(), count=size)).view(torch.int8).mul_(2).sub_(1)
        return scaled(signs, bits(scales, torch.float32), self.block)
