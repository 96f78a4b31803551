"""An attack by somebody who knows that signs are counted."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("against_signs")
class AgainstSigns(Attack):
    """All attackers vote against the majority of the honest in every coordinate, ``scale`` times as far as those go.

    That lowers |S| by f everywhere, so masks close, dampening and paces slow down, and where the honest were divided
    the attackers decide the sign. Steps as long as the honest clients' mean |u| do not stand out. It is ours: what
    somebody would send who knows GMA's τ or the pace.
    """

    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """−scale · sgn(Σ sgn u) · mean |u|; where the honest are tied, against their mean."""
        majority = torch.sign(honest).sum(0).sign()
        majority = torch.where(majority == 0, honest.mean(0).sign(), majority)
        return (-self.scale * majority * honest.abs().mean(0)).expand_as(own).clone()
