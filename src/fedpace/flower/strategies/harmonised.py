"""Gradient harmonisation in Flower."""

from __future__ import annotations

from typing import Literal, Unpack

from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower.strategy import ServerStrategy


class Harmonised(ServerStrategy):
    """Clients count by the sum of their cosines with all clients (FedGH as FedPACE describes it, Eq. 2).

    ``negative``: a client whose sum is negative does not count (``clamp``), or counts as it is (``keep``). Examples
    multiply these weights with ``weights`` = "samples". See :class:`fedpace.aggregation.Harmonised`, which keeps all
    updates. ClientApps need no change.
    """

    def __init__(
        self,
        negative: Literal["clamp", "keep"] = "clamp",
        *,
        optimizer: Optimizer = "sgd",
        weights: Weights = "uniform",
        **options: Unpack[CommonOptions],
    ) -> None:
        rule = {"name": "harmonised", "negative": negative}
        options.setdefault("pairwise", 32)  # the rule keeps all updates anyway
        super().__init__(rule=rule, optimizer=optimizer, weights=weights, **options)
