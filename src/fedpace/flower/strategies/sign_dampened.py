"""FedPACE's dampening of pseudo-gradients in Flower."""

from __future__ import annotations

from typing import Unpack

from fedpace.flower._options import RuleOptions
from fedpace.flower.strategy import ServerStrategy


class SignDampened(ServerStrategy):
    """Each coordinate of the mean update is scaled by the clients' agreement on its sign (FedPACE, Eq. 3–5).

    The paper takes gradients, which is a window of :class:`FedPACE`; this is its remark on updates, for every round.
    See :class:`fedpace.aggregation.Dampened`. ClientApps need no change.
    """

    def __init__(self, **options: Unpack[RuleOptions]) -> None:
        super().__init__(rule="dampened", **options)
