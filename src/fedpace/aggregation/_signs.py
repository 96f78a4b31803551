"""The sign-sum kernel: how far do clients agree on the direction of each coordinate?

Sums of signs are integers. Accumulating ±1/N in floating point misses thresholds that are met exactly (A = 0.4 at
N = 10, GMA's main setting), so every comparison here is one of integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor
from typing import Literal

import torch
from torch import Tensor

from fedpace.core import devices

Threshold = Literal["inclusive", "strict"]
BLOCK = 1 << 18  # coordinates per step: they stay in a core's cache, and temporaries out of the server's memory
RUN = 512  # columns of which products are summed in float32: longer sums lose digits, shorter ones lose speed
SLACK = 1e-9  # a share such as 0.4 is not exact in binary: this close to it is equal


def blocks(size: int, rows: int = 1) -> Iterator[slice]:
    """Consecutive slices that cover ``size`` coordinates; shorter ones where ``rows`` of them are worked on at once."""
    step = max(BLOCK // rows, 1)
    return (slice(start, start + step) for start in range(0, size, step))


def threshold_count(share: float, clients: int) -> int:
    """The smallest |S| that reaches an agreement of ``share`` among ``clients``.

    >>> threshold_count(0.4, 10), threshold_count(1 / 3, 3), threshold_count(0.2, 3)
    (4, 1, 1)
    """
    return ceil(share * clients - SLACK)


def highest_below(share: float, clients: int, threshold: Threshold = "inclusive") -> int:
    """The largest |S| that does not pass: below ``share``, or, where the threshold is strict, not above it.

    >>> highest_below(0.4, 10), highest_below(0.4, 10, "strict"), highest_below(0.0, 3)
    (3, 4, -1)
    """
    return threshold_count(share, clients) - 1 if threshold == "inclusive" else floor(share * clients + SLACK)


def sign_type(clients: int) -> torch.dtype:
    """The narrowest integers that hold the sum of so many signs.

    >>> sign_type(127), sign_type(128), sign_type(32_768)
    (torch.int8, torch.int16, torch.int32)
    """
    return next(t for t in (torch.int8, torch.int16, torch.int32) if clients <= torch.iinfo(t).max)


class SignSum:
    """S = Σ sgn(uᵢ) per coordinate, with sgn(0) = 0, in one integer vector however many clients report."""

    def __init__(self, size: int, clients: int) -> None:
        self.sum = torch.zeros(size, dtype=sign_type(clients))
        self.clients = 0

    def add(self, update: Tensor) -> None:
        """Count one client's signs. A client that sends zero lowers the agreement: it still counts in N."""
        self._count(1)
        if devices.on_cpu(update):
            from fedpace.aggregation._kernels import count_signs

            count_signs(update.numpy(), self.sum.numpy())
        else:
            self.sum.add_((update > 0).to(self.sum.dtype)).sub_((update < 0).to(self.sum.dtype))

    def add_with(self, update: Tensor, share: float, totals: Tensor) -> None:
        """Count one client's signs and, in the same pass over them, add ``share`` of its update to ``totals``."""
        if not devices.on_cpu(update):
            totals.add_(update, alpha=share)
            self.add(update)
            return
        from fedpace.aggregation._kernels import add_and_count

        self._count(1)
        sums = totals.numpy()
        add_and_count(update.numpy(), sums.dtype.type(share), sums, self.sum.numpy())

    def absorb(self, signs: Tensor, clients: int) -> None:
        """Take the signs of so many clients, summed elsewhere."""
        self._count(clients)
        self.sum += signs

    def _count(self, clients: int) -> None:
        """More clients than were announced: wider integers, or their sum would begin again at the other end."""
        self.clients += clients
        if self.clients > torch.iinfo(self.sum.dtype).max:
            self.sum = self.sum.to(sign_type(self.clients))

    def counts(self, part: slice = slice(None)) -> Tensor:
        """|S| of some coordinates: agreement times the number of clients, an integer."""
        return self.sum[part].abs()

    def mean_agreement(self, coordinates: int | None = None) -> float:
        """Agreement A = |S| / N averaged over all coordinates, or over the number of those that anyone moved."""
        total = sum(int(self.counts(part).sum(dtype=torch.int64)) for part in blocks(len(self.sum)))
        return total / max((len(self.sum) if coordinates is None else coordinates) * self.clients, 1)

    def histogram(self, part: slice = slice(None)) -> list[int]:
        """Number of coordinates with |S| = 0, 1, …, N."""
        signs = self.sum[part]
        found = signs.new_zeros(self.clients + 1, dtype=torch.int64)
        for block in blocks(len(signs)):
            found += torch.bincount(signs[block].abs().int(), minlength=self.clients + 1)
        return [int(count) for count in found]
