"""Attacks that go as far from the honest as a distance allows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor

from fedpace.attacks._attack import Attack

_HALVINGS = 30


class Furthest(Attack):
    """All attackers send mean + γp, with the largest γ at which they do not stand out (Shejwalkar & Houmansadr, 2021).

    ``direction`` p is one of the paper's: minus the deviation of the honest (``deviation``), minus their mean as a unit
    vector (``mean``), or minus its signs (``sign``). γ is found by halving; distances follow from two sums of each row,
    so a step costs nothing.
    """

    direction: Literal["deviation", "mean", "sign"] = "deviation"

    @abstractmethod
    def _allowed(self, squares: Tensor) -> float:
        """The bound, from the squared distances of all pairs of honest clients."""

    @abstractmethod
    def _reached(self, squares: Tensor) -> float:
        """What must stay within the bound, from the squared distances of the attackers' row to the honest."""

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """The same row for all."""
        mean = honest.mean(0)
        p = self._direction(honest, mean)
        apart = honest - mean
        gram = (apart @ apart.T).double()
        lengths = gram.diagonal()
        allowed = self._allowed(lengths[:, None] + lengths - 2 * gram)
        along, square = (apart @ p).double(), p.double().square().sum()
        low, high = 0.0, 1.0
        while high < 1e9 and self._reached(lengths - 2 * high * along + high**2 * square) <= allowed:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            within = self._reached(lengths - 2 * middle * along + middle**2 * square) <= allowed
            low, high = (middle, high) if within else (low, middle)
        return (mean + low * p).expand_as(own).clone()

    def _direction(self, honest: Tensor, mean: Tensor) -> Tensor:
        if self.direction == "deviation":
            return -honest.std(0, correction=0)
        return -torch.sign(mean) if self.direction == "sign" else -mean / mean.norm().clamp(min=1e-12)
