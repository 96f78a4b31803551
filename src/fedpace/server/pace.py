"""The pace of each coordinate: how far local training may move it, from how well clients agree about it."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.core import Named, Registry, torch_stream


class Pace(Named):
    """Dampening where conflict arises, in the clients' own steps, instead of afterwards in their mean (ours).

    A coordinate in which clients cancel each other out is moved by all of them in vain, yet the rest of each client's
    model adapts to where it went; their mean then fits nobody. So conflicting coordinates take shorter local steps, and
    agreeing ones longer steps. With a round's agreement |Σ pᵢuᵢ| / Σ pᵢ|uᵢ| and its average A over the rounds:

    pace = Aᵖ / mean(Aᵖ), at least ``floor``.

    The mean pace is 1: local work and learning rate are FedAvg's, only distributed otherwise.

    Parameters: ``memory``, the weight of earlier rounds in A (0: only the last one counts); ``power`` p (0 is FedAvg);
    ``floor``, at which a coordinate can recover from conflict. Cost: a vector that the server keeps and sends along.
    """

    memory: float = Field(0.5, ge=0, lt=1)
    power: float = Field(2.0, ge=0)
    floor: float = Field(0.05, gt=0, le=1)

    def remember(self, earlier: Tensor | None, latest: Tensor) -> Tensor:
        """The average agreement after one more round."""
        return latest if earlier is None else latest.lerp(earlier, self.memory)

    def of(self, agreement: Tensor) -> Tensor:
        """The pace of each coordinate.

        >>> Pace(power=1).of(torch.tensor([1.0, 0.5, 0.0]))
        tensor([2.0000, 1.0000, 0.0500])
        """
        powered = agreement.pow(self.power)
        return powered.div_(powered.mean().clamp_(min=torch.finfo(powered.dtype).tiny)).clamp_(min=self.floor)


paces: Registry[Pace] = Registry("pace", Pace)
paces.register("agreement")(Pace)


@paces.register("shuffled")
class ShuffledPace(Pace):
    """A control: the same paces, dealt to coordinates at random and for good. What remains is not due to agreement."""

    def of(self, agreement: Tensor) -> Tensor:
        """The paces in another order, the same in every round."""
        return super().of(agreement)[torch.randperm(len(agreement), generator=torch_stream(0, "shuffled pace"))]
