"""FedGH as FedPACE describes it: clients count by their similarity to the others."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedpace.aggregation._gram import NOISE, cosines
from fedpace.aggregation._gram_rule import GramRule
from fedpace.aggregation._rule import Diagnostics, rules


@rules.register("harmonised")
class Harmonised(GramRule):
    """Clients are weighted by the sum of their cosines with all clients (FedPACE, Eq. 2).

    wᵢ = Σⱼ cos(uᵢ, uⱼ), result Σ wᵢuᵢ / Σ wᵢ. A single wᵢ can be negative: ``negative`` = ``clamp`` sets it to zero,
    ``keep`` is literal. If they sum to zero, clients count alike. With two clients this is the uniform mean.
    Sample weights multiply wᵢ where given.
    """

    negative: Literal["clamp", "keep"] = "clamp"

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Normalised cosine sums."""
        silent = gram_matrix.diagonal() == 0  # clients that sent zero are alike, though they have no direction
        alike = cosines(gram_matrix).masked_fill_(silent[:, None] & silent[None, :], 1.0)
        sums = alike.sum(dim=1) * weights
        if self.negative == "clamp":
            sums = sums.clamp_min(0)
        cancelled = sums.sum() <= NOISE * len(sums)
        return torch.full_like(sums, 1 / len(sums)) if cancelled else sums / sums.sum(), {}
