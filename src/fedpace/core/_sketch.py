"""Short stand-ins for long vectors: their cosines are nearly those of the vectors."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from fedpace.core.seeds import torch_stream


def sketch(vector: Tensor, dimensions: int, seed: int = 0) -> Tensor:
    """A count sketch (Charikar et al., 2002): each coordinate goes with a random sign to a random bucket.

    Linear. Cosines of sketches differ from those of the vectors by about 1/√``dimensions``. Whoever uses the same
    ``seed`` gets the same sketch, on every machine. Cost: O(d) time, five bytes per coordinate that are remembered.

    >>> sketch(torch.tensor([3.0, 0.0, 0.0, 4.0]), 2).abs().sum().item() in (1.0, 7.0)
    True
    """
    buckets, signs = _hash(len(vector), dimensions, seed, vector.device)
    return vector.new_zeros(dimensions).index_add_(0, buckets, vector * signs)


@lru_cache(maxsize=1)  # a search sketches many vectors of one model
def _hash(size: int, dimensions: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Bucket and sign of each coordinate."""
    generator = torch_stream(seed, "sketch", dimensions)
    buckets = torch.randint(dimensions, (size,), generator=generator, dtype=torch.int32)
    signs = torch.randint(2, (size,), generator=generator, dtype=torch.int8).mul_(2).sub_(1)
    return buckets.to(device), signs.to(device)
