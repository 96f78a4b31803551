"""Values so large, or weights so small, that sums in the precision of the updates would not be numbers any more."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.core import ConfigError

RANGE = 1e37  # sums of float32 stay below this, with room for rounding
WIDEST = 1e140  # squares of float64, and sums of many of them, are numbers


def leaves_range(updates: Tensor, weights: list[float]) -> bool:
    """Whether sums of the weighted rows may leave the range of float32, or their weights vanish in it."""
    largest, total = largest_value(updates), sum(weights)
    check_range(largest)
    return max(largest, 1.0) * max(total, len(weights)) > RANGE or 0 < total < 1 / RANGE


def check_range(largest: float) -> None:
    """Refuse values of which products leave the range of float64."""
    if WIDEST < largest < torch.inf:
        raise ConfigError(f"updates: expected values of at most {WIDEST:g}, found {largest:g}")


def largest_value(tensor: Tensor) -> float:
    """The largest |value|; NaN if one is: extremes carry it along. No vector of flags is needed."""
    return max(abs(float(extreme)) for extreme in tensor.aminmax()) if tensor.numel() else 0.0


def narrowed(result: Tensor, dtype: torch.dtype) -> Tensor:
    """A result in another precision; what lies beyond its range comes to lie at its end."""
    end = torch.finfo(dtype).max
    return result.clamp(-end, end).to(dtype)
