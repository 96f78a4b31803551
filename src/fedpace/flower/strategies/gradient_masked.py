"""Gradient masked averaging in Flower."""

from __future__ import annotations

from typing import Unpack

from fedpace.flower._options import RuleOptions
from fedpace.flower.strategy import ServerStrategy


class GradientMasked(ServerStrategy):
    """The mean where enough clients agree on the sign, dampened elsewhere (Tenison et al., 2023).

    ``tau`` is the agreement from which a coordinate passes: 0.4 means that 70 % of the clients share the sign, 0 is
    FedAvg. See :class:`fedpace.aggregation.Masked`. The mask multiplies the step of the ``optimizer`` (default: "sgd").
    ClientApps need no change.
    """

    def __init__(self, tau: float = 0.4, **options: Unpack[RuleOptions]) -> None:
        super().__init__(rule={"name": "masked", "tau": tau}, **options)
