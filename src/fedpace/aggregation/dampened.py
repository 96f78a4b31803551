"""Sign-agreement dampening of FedPACE."""

from __future__ import annotations

from fedpace.aggregation._rule import rules
from fedpace.aggregation._scaled import SignScaled


@rules.register("dampened")
class Dampened(SignScaled):
    """Each coordinate of the mean is scaled by the agreement on its sign (FedPACE, Eq. 3–5).

    g_avg = Σ pᵢgᵢ, W = |Σ sgn(gᵢ)| / N, result g_avg ⊙ W. The paper weights clients uniformly.

    >>> import torch
    >>> Dampened()(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3.0000, -0.3333])
    """

    def enough(self, all_votes: float) -> float:
        """All of them: W is the agreement itself."""
        return all_votes
