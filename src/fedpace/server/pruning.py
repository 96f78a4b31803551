"""Pruning of coordinates on which clients persistently disagree (FedPACE, Eq. 6 and its other two readings)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation import SignSum, threshold_count
from fedpace.core import Layout, Settings, devices


class Pruning(Settings):
    """When a coordinate is pruned, and what that does to it.

    A coordinate is in conflict when its agreement lies below ``threshold`` (t_p); it is pruned after ``persistence``
    (e_p) consecutive rounds of conflict.

    ``mode``: ``zero`` sets pruned weights to zero (the authors' README), ``zero_scale`` also multiplies the surviving
    weights by their agreement (Eq. 6 to the letter; it destroys the model), ``grad_mask`` keeps the weights and skips
    their step (the authors' notebooks). ``permanent``: once pruned, always pruned. ``zero_gradient``: a coordinate in
    which every client sent exactly zero is ``neutral``, or, ``literal``, in conflict. ``include``: all
    parameters, or only those of at least two dimensions (zeroing a BatchNorm scale kills a channel).
    """

    threshold: float = Field(0.2, ge=0)
    persistence: int = Field(1, ge=1, le=255)
    mode: Literal["zero", "zero_scale", "grad_mask"] = "zero"
    permanent: bool = True
    zero_gradient: Literal["neutral", "literal"] = "neutral"
    include: Literal["all", "weights_only"] = "all"

    def lowest_agreement(self, clients: int) -> float:
        """The lowest agreement that ``clients`` non-zero values can show: an odd number cannot split evenly."""
        return (clients % 2) / clients

    def can_act(self, clients: int) -> bool:
        """Whether any agreement score of ``clients`` clients lies below the threshold."""
        return threshold_count(self.threshold, clients) > clients % 2


class Pruner:
    """The state of pruning: how long each coordinate has been in conflict (a byte), and which are pruned (a flag)."""

    def __init__(self, settings: Pruning, layout: Layout, device: torch.device = devices.HOST) -> None:
        self.settings = settings
        self.counters = torch.zeros(layout.size, dtype=torch.uint8, device=device)
        self.mask = torch.zeros(layout.size, dtype=torch.bool, device=device)
        self._eligible = layout.where(lambda _, shape: settings.include == "all" or len(shape) >= 2).to(device)

    def count(self, signs: SignSum, touched: Tensor) -> None:
        """Note which coordinates are in conflict this round; ``touched``: some client sent a value other than zero."""
        # A threshold above every possible count would overflow the counts' small integers.
        least = min(threshold_count(self.settings.threshold, signs.clients), signs.clients + 1)
        conflict = signs.counts().int() < least
        longer = self.counters + (self.counters < 255)
        counted = torch.where(conflict, longer, 0)
        if self.settings.zero_gradient == "neutral":
            counted = torch.where(touched, counted, self.counters)
        self.counters = counted.to(torch.uint8)

    def prune(self) -> None:
        """Prune what has been in conflict for long enough; unless permanent, what recovered is let go."""
        found = (self.counters >= self.settings.persistence) & self._eligible
        self.mask = self.mask | found if self.settings.permanent else found

    def apply(self, before: Tensor, after: Tensor, signs: SignSum | None) -> None:
        """Bring the vector ``after`` a step under the mask, in place; ``signs`` are given in pruning rounds.

        In all other rounds only a permanent mask holds.
        """
        if signs is None and not self.settings.permanent:
            return
        if self.settings.mode == "zero_scale" and signs is not None:
            after.mul_(torch.where(self._eligible, signs.counts().float().div_(signs.clients), 1.0))
        if self.settings.mode == "grad_mask":
            torch.where(self.mask, before, after, out=after)
        else:
            after.masked_fill_(self.mask, 0.0)

    @property
    def share(self) -> float:
        """Share of the parameters that is pruned."""
        return float(self.mask.float().mean())
