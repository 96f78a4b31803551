"""Rules that multiply the mean, coordinate by coordinate, with a factor that depends on the sign sum alone."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, Stream, WeightedSum
from fedpace.aggregation._signs import SignSum, blocks


class SignScaled(Rule):
    """Δ ⊙ m(S): never flips the sign of the mean, never lengthens a coordinate. Memory: two vectors. Time: O(Nd)."""

    @abstractmethod
    def factor(self, counts: Tensor, clients: int) -> Tensor:
        """The factor m in [0, 1] of some coordinates, from their |S| and N; float32."""

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _SignScaledStream(self, size, clients, dtype)


class _SignScaledStream(Stream):
    signs: SignSum

    def __init__(self, rule: SignScaled, size: int, clients: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._rule = rule
        self._sum = WeightedSum(size, dtype)
        self.signs = SignSum(size, clients)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._sum.add(update, weight)
        self.signs.add(update)

    def finish(self) -> Tensor:
        mean = self._sum.mean()
        factors, mismatches = 0.0, 0
        for part in blocks(len(mean)):
            factor = self._rule.factor(self.signs.counts(part), max(self.signs.clients, 1))
            factors += float(factor.sum())
            # A heavy minority can give the mean the sign that most clients oppose; the factor does not mend that.
            mismatches += int((torch.sign(mean[part]) * self.signs.sum[part]).lt(0).sum())
            mean[part] *= factor
        size = max(len(mean), 1)
        self.diagnostics = {"mean_factor": factors / size, "majority_mismatch": mismatches / size}
        return mean
