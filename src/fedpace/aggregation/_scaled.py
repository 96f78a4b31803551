"""Rules that multiply the mean, coordinate by coordinate, with a factor that depends on the clients' signs alone."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Literal

import torch
from torch import Tensor

from fedpace.aggregation._rule import Rule, ScaledStream, Stream, WeightedSum
from fedpace.aggregation._signs import SignSum, blocks

Votes = Literal["uniform", "samples"]


class SignScaled(Rule):
    """Δ ⊙ m(S): never flips the sign of the mean.

    Memory: two vectors, and a third for the factors at the end. Time: O(Nd).
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
        self._sum.add(update, weight)
        self.signs.add(update)
        if self._votes is not None:
            self._votes.add(torch.sign(update), weight)

    def split(self) -> tuple[Tensor, Tensor]:
        """The mean and its factors."""
        mean = self._sum.mean()
        mask = torch.empty(len(mean), dtype=torch.float32)
        factors, shares = 0.0, Counter[str]()
        for part in blocks(len(mean)):
            counts, clients = self._counts(part)
            mask[part] = self._rule.factor(counts, clients)
            factors += float(mask[part].sum())
            # A heavy minority can give the mean the sign that most clients oppose; the factor does not mend that.
            shares["majority_mismatch"] += int((torch.sign(mean[part]) * self.signs.sum[part]).lt(0).sum())
            shares.update(self._rule.tally(counts, clients))
        size = max(len(mean), 1)
        self.diagnostics = {"mean_factor": factors / size, **{name: count / size for name, count in shares.items()}}
        return mean, mask

    def _counts(self, part: slice) -> tuple[Tensor, float]:
        """The votes that decide, and how many there are."""
        if self._votes is None:
            return self.signs.counts(part), max(self.signs.clients, 1)
        return self._votes.sum[part].abs(), self._votes.total or max(self._votes.clients, 1)
