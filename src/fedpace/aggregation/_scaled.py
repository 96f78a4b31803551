"""Rules that multiply the mean, coordinate by coordinate, with a factor that depends on the clients' signs alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpace.aggregation._arrays import masked_softly
from fedpace.aggregation._rule import Quantity, Rule, ScaledStream, Stream, Sums, WeightedSum
from fedpace.aggregation._signs import SignSum
from fedpace.core import Weights, devices


class SignScaled(Rule):
    """Δ ⊙ m(A): m is 1 where the agreement A is enough, ``slope`` · A elsewhere; never flips the sign of the mean.

    Memory: two vectors, and a third for the factors where they are wanted apart. Time: O(Nd).
    """

    slope: ClassVar[float] = 1.0

    @property
    def beyond_sums(self) -> str | None:
        """Nothing: it is made of sums of updates and of signs."""
        return None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Signs."""
        return ("signs",)

    @abstractmethod
    def enough(self, all_votes: float) -> float:
        """The smallest |Σ sgn(uᵢ)| that is enough: among so many clients, or as a share where it is 1.0."""

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return SignScaledStream(self, size, clients, dtype)


class SignScaledStream(ScaledStream):
    """The mean and the sign sum. Where ``votes`` are by samples, signs are also summed with the mean's weights."""

    signs: SignSum

    def __init__(
        self, rule: SignScaled, size: int, clients: int, dtype: torch.dtype, votes: Weights = "uniform"
    ) -> None:
        super().__init__()
        self._rule = rule
        self._sum = WeightedSum(size, dtype)
        self.signs = SignSum(size, clients)
        # In double precision sums of sample counts are exact.
        self._votes = WeightedSum(size, torch.float64) if votes == "samples" else None

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        """Take one client's update."""
        self.signs.add_with(update, self._sum.share(weight), self._sum.sum)
        if self._votes is not None:
            self._votes.add(torch.sign(update), weight)

    def absorb(self, sums: Sums) -> None:
        """Take updates and signs that were summed elsewhere."""
        self._sum.absorb(sums)
        sums.of("signs").count(self.signs)
        if self._votes is not None:
            self._votes.absorb(sums.of("votes"))

    def split(self) -> tuple[Tensor, Tensor]:
        """The mean and its factors."""
        mask = torch.empty_like(self._sum.sum, dtype=torch.float32)
        return self._masked(mask), mask

    def finish(self) -> Tensor:
        """Their product, without a vector of factors."""
        return self._masked(None)

    def _masked(self, mask: Tensor | None) -> Tensor:
        """The mean, whose factors go into ``mask``, or into the mean itself."""
        mean, signs = self._sum.mean(), self.signs.sum
        votes, all_votes = (signs, self.signs.clients or 1) if self._votes is None else (self._votes.mean(), 1.0)
        apply = _compiled if devices.on_cpu(mean) else masked_softly
        below, opposed, lost = apply(
            mean, signs, votes, all_votes, self._rule.enough(all_votes), self._rule.slope, mask
        )
        size = max(len(mean), 1)
        self.diagnostics = {
            "mean_factor": 1 - (below - self._rule.slope * lost / all_votes) / size,
            # A heavy minority can give the mean the sign that most clients oppose; the factor does not mend that.
            "majority_mismatch": opposed / size,
            "below_tau": below / size,
        }
        return mean


def _compiled(
    mean: Tensor, signs: Tensor, votes: Tensor, all_votes: float, enough: float, slope: float, mask: Tensor | None
) -> tuple[int, int, float]:
    from fedpace.aggregation._kernels import soft_mask

    counts = votes.numpy()
    # A Python integer would be 64 bits wide in the kernel, and so would each comparison with it.
    least = np.result_type(counts, np.int32).type(enough)
    factors = None if mask is None else mask.numpy()
    found: tuple[int, int, float] = soft_mask(
        mean.numpy(), signs.numpy(), counts, np.float32(all_votes), least, np.float32(slope), factors
    )
    return found
