"""The length of an update, in one pass over it."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from fedpace.core import devices


def length(vector: Tensor) -> float:
    """‖u‖, summed in float64: squares of float32 neither overflow nor vanish, and no copy of the vector is made.

    >>> round(length(torch.tensor([3e30, 4e30])) / 1e30, 6)
    5.0
    """
    if not devices.on_cpu(vector):
        return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    from fedpace.aggregation._kernels import sum_of_squares

    return sqrt(sum_of_squares(vector.contiguous().numpy()))
