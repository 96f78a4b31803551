"""What the compiled loops do, as array operations: for tensors that they cannot read, because these lie on a GPU.

The results agree with the loops' up to rounding, and those that are integers exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._signs import RUN, blocks


def masked_softly(
    values: Tensor, signs: Tensor, votes: Tensor, clients: float, enough: float, slope: float, mask: Tensor | None
) -> tuple[int, int, float]:
    """Fill ``mask`` with 1 where |vote| is ``enough``, else with ``slope`` · |vote| / ``clients``.

    Without a mask, values are multiplied by it at once. Returned are how many votes are not enough, how many values
    have the other sign than their sum of ``signs``, and the sum of the votes that are not enough.
    """
    counts = votes.abs() if votes.is_floating_point() else votes.abs().int()  # ``enough`` may not fit into a byte
    lacking = counts < enough
    opposed = signs.sign() * values.sign() < 0
    lost = torch.where(lacking, counts, 0).sum()
    factors = torch.where(lacking, slope * (counts.float() / clients), 1.0)
    if mask is None:
        values.mul_(factors)
    else:
        mask.copy_(factors)
    return int(lacking.sum()), int(opposed.sum()), float(lost)


def products(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """UUᵀ: runs of columns are multiplied in the precision ``dtype``, and their products summed in float64."""
    count = len(rows)
    total = rows.new_zeros(count, count, dtype=torch.float64)
    for block in blocks(rows.shape[1], count):
        piece = rows[:, block].to(dtype)
        whole = piece.shape[1] // RUN * RUN
        runs = piece[:, :whole].reshape(count, -1, RUN).transpose(0, 1)
        rest = piece[:, whole:]
        total += (runs @ runs.transpose(1, 2)).double().sum(dim=0) + (rest @ rest.T).double()
    return total
