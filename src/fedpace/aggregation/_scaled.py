"""Rules that multiply the mean, coordinate by coordinate, with a factor that depends on the clients' signs alone."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, ScaledStream, Stream, WeightedSum
from fedpace.aggregation._signs import SignSum, blocks

Votes = Literal["uniform", "samples"]


class SignScaled(Rule):
    """Δ ⊙ m(S): never flips the sign of the mean.

    Memory: two vectors, and a third for the factors where they are wanted apart. Time: O(Nd).
    """

    @abstractmethod
    def factor(self, counts: Tensor, clients: float) -> Tensor:
        """The factor m of some coordinates, from their |S| and N (or from Σ wᵢsgn(uᵢ) and Σ wᵢ); float32."""

    def tally(self, counts: Tensor, clients: float) -> dict[str, int]:
        """How many of these coordinates are of some kind that is worth reporting."""
        return {}

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return SignScaledStream(self, size, clients, dtype)


class SignScaledStream(ScaledStream):
    """The mean and the sign sum. Where ``votes`` are by samples, signs are also summed with the mean's weights."""

    signs: SignSum

    def __init__(self, rule: SignScaled, size: int, clients: int, dtype: torch.dtype, votes: Votes = "uniform") -> None:
        super().__init__()
        self._rule = rule
        self._sum = WeightedSum(size, dtype)
        self.signs = SignSum(size, clients)
        # In double precision sums of sample counts are exact.
        self._votes = WeightedSum(size, torch.float64) if votes == "samples" else None

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        """Take one client's update."""
        share = self._sum.share(weight)
        for part in self.signs.adding(update):
            self._sum.sum[part].add_(update[part], alpha=share)
        if self._votes is not None:
            self._votes.add(torch.sign(update), weight)

    def split(self) -> tuple[Tensor, Tensor]:
        """The mean and its factors."""
        mean = self._sum.mean()
        mask = torch.empty(len(mean), dtype=torch.float32)
        for part, factor in self._factors(mean):
            mask[part] = factor
        return mean, mask

    def finish(self) -> Tensor:
        """Their product, without a vector of factors."""
        mean = self._sum.mean()
        for part, factor in self._factors(mean):
            mean[part] *= factor
        return mean

    def _factors(self, mean: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The factors of each block of coordinates; at the end, the diagnostics."""
        total, tally = 0.0, Counter[str]()
        values, signs = mean.numpy(), self.signs.sum.numpy()  # NumPy compares ten times as fast as torch
        for part in blocks(len(mean)):
            counts, clients = self._counts(part)
            factor = self._rule.factor(counts, clients)
            total += float(factor.sum())
            # A heavy minority can give the mean the sign that most clients oppose; the factor does not mend that.
            tally["majority_mismatch"] += int(np.count_nonzero(values[part] * signs[part] < 0))
            tally.update(self._rule.tally(counts, clients))
            yield part, factor
        size = max(len(mean), 1)
        self.diagnostics = {"mean_factor": total / size, **{name: count / size for name, count in tally.items()}}

    def _counts(self, part: slice) -> tuple[Tensor, float]:
        """The votes that decide, and how many there are."""
        if self._votes is None:
            return self.signs.counts(part), max(self.signs.clients, 1)
        return self._votes.sum[part].abs(), self._votes.total or max(self._votes.clients, 1)
