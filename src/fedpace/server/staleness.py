"""How much an update counts whose client began some steps of the server ago."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

from pydantic import Field, SerializeAsAny

from fedpace.core import Named, Registry, by_name


class Staleness(Named, ABC):
    """A factor of an update's weight, by τ: how many steps the server took since the client began. 1 where τ = 0."""

    @abstractmethod
    def weight(self, steps: int) -> float:
        """The factor for τ = ``steps``."""


staleness_weights: Registry[Staleness] = Registry("staleness", Staleness)

AnyStaleness = SerializeAsAny[Annotated[Staleness, by_name(staleness_weights, "polynomial")]]


@staleness_weights.register("constant")
class ConstantStaleness(Staleness):
    """Old updates count as much as new ones."""

    def weight(self, steps: int) -> float:
        """Always 1."""
        return 1.0


@staleness_weights.register("polynomial")
class PolynomialStaleness(Staleness):
    """(1 + τ)^-a (Xie et al., 2019), by default 1/√(1 + τ) as in FedBuff (Nguyen et al., 2022).

    ``a`` says how fast updates lose weight: 0 would be never.

    >>> PolynomialStaleness().weight(0), PolynomialStaleness().weight(3)
    (1.0, 0.5)
    """

    a: float = Field(0.5, gt=0, allow_inf_nan=False)

    def weight(self, steps: int) -> float:
        """Falls slower and slower."""
        return float((1 + steps) ** -self.a)


@staleness_weights.register("hinge")
class HingeStaleness(Staleness):
    """1 up to τ = b, beyond it 1 / (a(τ - b) + 1) (Xie et al., 2019, FedAsync+Hinge).

    ``b`` is the age up to which updates count whole; ``a`` is how fast they lose weight from there on.

    >>> [HingeStaleness(a=1, b=2).weight(steps) for steps in (0, 2, 3, 5)]
    [1.0, 1.0, 0.5, 0.25]
    """

    a: float = Field(10.0, gt=0, allow_inf_nan=False)
    b: int = Field(4, ge=0)

    def weight(self, steps: int) -> float:
        """Flat at first."""
        return 1.0 / (self.a * max(steps - self.b, 0) + 1)
