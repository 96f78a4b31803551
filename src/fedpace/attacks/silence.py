"""An attack on one client, by means of rules that count signs."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks


@attacks.register("silence")
class Silence(Attack):
    """All attackers vote against the honest client that differs most from the others, wherever it differs from them.

    That is the client whose update has the lowest cosine with the mean of the honest. Where its sign is that of the
    minority the attackers send the majority's, elsewhere what the honest send in the mean: nothing of it looks false,
    and what the client alone knows is masked, dampened or outvoted. ``scale`` is the attackers' length in units of the
    honest clients' mean |u|. It is ours.
    """

    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """The mean, but against the victim where it stands alone."""
        mean = honest.mean(0)
        victim = honest[int(torch.nn.functional.cosine_similarity(honest, mean[None]).argmin())]
        against = -torch.sign(victim) * honest.abs().mean(0) * self.scale
        alone = torch.sign(victim) * torch.sign(honest).sum(0) <= 0
        return torch.where(alone, against, mean).expand_as(own).clone()
