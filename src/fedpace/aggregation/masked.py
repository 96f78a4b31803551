"""Gradient masked averaging."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedpace.aggregation._rule import rules
from fedpace.aggregation._scaled import SignScaled
from fedpace.aggregation._signs import threshold_count


@rules.register("masked")
class Masked(SignScaled):
    """The mean where enough clients agree on the sign, dampened elsewhere (Tenison et al., 2023, Algorithm 1).

    A = |Σ sgn(uᵢ)| / N; m = 1 where A ≥ ``tau``, else A; result m ⊙ Δ. Signs are counted without weights, the mean Δ is
    weighted. ``tau`` = 0 is the plain mean, ``tau`` = 1 is :class:`Dampened`. An agreement of 0.4 means that 70 % of
    the clients share the dominant sign.

    >>> import torch
    >>> Masked(tau=0.5)(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3.0000, -0.3333])
    >>> Masked(tau=0.3)(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3., -1.])
    """

    tau: float = Field(0.4, ge=0, le=1)

    def factor(self, counts: Tensor, clients: int) -> Tensor:
        """The soft mask m."""
        return (counts.float() / clients).masked_fill_(counts >= threshold_count(self.tau, clients), 1.0)
