"""ConFREE in Flower."""

from __future__ import annotations

from typing import Unpack

from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower.strategy import ServerStrategy


class ConflictFree(ServerStrategy):
    """A step near the mean of conflict-free updates that serves the worst-off client best (ConFREE, Zheng et al. 2025).

    ``c`` is how far from that mean, relative to its length; ``weights`` whether clients count in it alike (the poster)
    or by samples. See :class:`fedpace.aggregation.ConflictFree`, which keeps all updates. ClientApps need no change: in
    an app with personal layers the rule is for what clients send.
    """

    def __init__(
        self,
        c: float = 0.5,
        *,
        optimizer: Optimizer = "sgd",
        weights: Weights = "uniform",
        **options: Unpack[CommonOptions],
    ) -> None:
        rule = {"name": "conflict_free", "c": c, "client_weights": weights}
        options.setdefault("pairwise", 32)  # the rule keeps all updates anyway
        super().__init__(rule=rule, optimizer=optimizer, weights=weights, **options)
