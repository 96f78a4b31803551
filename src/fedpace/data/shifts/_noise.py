"""Random numbers that belong to examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpace.core import derive
from fedpace.data.examples import Indices


def noise(indices: Indices, seed: int, name: str) -> NDArray[np.float64]:
    """A number in [0, 1) for each index; it depends on the seed, the name and the index, not on the batch.

    SplitMix64 (Steele et al., 2014): a generator that can jump to any index, for a whole batch at once.

    >>> bool(noise(np.array([7, 3]), 0, "hue")[1] == noise(np.array([3]), 0, "hue")[0])
    True
    """
    state = np.uint64(derive(seed, name)) + (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
