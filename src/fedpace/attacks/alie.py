"""A little is enough: within the spread of the honest, and yet all on one side."""

from __future__ import annotations

from statistics import NormalDist

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("alie")
class ALIE(Attack):
    """All attackers send mean − z · deviation of the honest, coordinate by coordinate (Baruch et al., 2019).

    z is so small that a median would still choose an attacker: with N clients and f attackers,
    s = ⌊N/2⌋ + 1 − f honest ones have to be further out, Φ(z) = (N − f − s) / (N − f). ``z`` sets it by hand.
    """

    z: float | None = Field(None, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """The same row for all."""
        z = self.z if self.z is not None else largest_z(len(honest), len(own))
        row = honest.mean(0) - z * honest.std(0, correction=0)
        return row.expand_as(own).clone()


def largest_z(honest: int, attackers: int) -> float:
    """The paper's z; 0 where attackers are too few for it.

    >>> round(largest_z(honest=38, attackers=12), 2)
    0.34
    """
    outside = (honest + attackers) // 2 + 1 - attackers
    share = (honest - outside) / honest
    return max(NormalDist().inv_cdf(min(max(share, 0.5), 0.999)), 0.0)
