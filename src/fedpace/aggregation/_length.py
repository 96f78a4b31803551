"""The length of an update, in one pass over it."""

from __future__ import annotations

from math import hypot, sqrt

import torch
from torch import Tensor

from fedpace.aggregation._signs import blocks
from fedpace.core import devices


def length(vector: Tensor) -> float:
    """‖u‖. On the CPU squares are summed in float64: those of float32 neither overflow nor vanish. No copy is made.

    >>> round(length(torch.tensor([3e30, 4e30])) / 1e30, 6)
    5.0
    """
    if not devices.on_cpu(vector):  # not every device knows double precision
        return hypot(*(float(torch.linalg.vector_norm(vector[part])) for part in blocks(len(vector))))
    from fedpace.aggregation._kernels import sum_of_squares

    return sqrt(sum_of_squares(vector.contiguous().numpy()))
