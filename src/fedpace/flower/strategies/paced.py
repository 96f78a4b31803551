"""Paced local steps in Flower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower._stages import exchange
from fedpace.flower.strategy import ServerStrategy
from fedpace.server import Pace, Schedule, Stage


class Paced(ServerStrategy):
    """Clients take long local steps where they agree and short ones where they conflict (ours).

    ``pace`` is sent to ClientApps as a second ArrayRecord, "pace". They must call :func:`fedpace.flower.apply_pace` on
    their optimizer: a ClientApp that does not is a client of FedAvg.
    """

    def __init__(
        self,
        *,
        pace: Pace | str | Mapping[str, Any] = "agreement",
        optimizer: Optimizer = "sgd",
        weights: Weights = "samples",
        **options: Unpack[CommonOptions],
    ) -> None:
        base = Stage(name="paced", exchanges=(exchange(pace=pace, optimizer=optimizer, weights=weights),))
        super().__init__(Schedule(base=base), sends_pace=True, **options)
