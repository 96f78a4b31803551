"""FedPACE in Flower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fedpace.core import Perturbation
from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower.strategy import ServerStrategy, stage
from fedpace.server import Annealing, Pace, Pruning, Schedule
from fedpace.server.annealing import Margin

Window = tuple[int, int | None]

SEARCH = Annealing(perturbation=Perturbation(rho=3e-4), accept=Margin(beta=0.0))
"""A search that can act; the paper's margin (beta = 0.3 at rho = 1e-5) is out of reach."""


class FedPACE(ServerStrategy):
    """FedPACE as we recommend it: clients take long local steps where they agree and short ones where they conflict.

    ``pace`` is sent to ClientApps as a second ArrayRecord, "pace". They must call :func:`fedpace.flower.apply_pace` on
    their optimizer: a ClientApp that does not is a client of FedAvg. ``pace=None`` sends none.

    The paper's three stages are windows of rounds, (first, last), inclusive and counted from 0 (Flower's round 1 is
    round 0), with an open end if the last is ``None``: ``anneal`` begins rounds with the ``search`` (ClientApps need
    ``answer_probe``), ``dampen`` scales gradients by the agreement on their signs and takes a step of ``lr``, ``prune``
    does so and prunes persistent conflict as ``pruning`` says (both need ``gradient_reply``). The paper's run is
    ``FedPACE(pace=None, anneal=(2, 15), dampen=(20, 41), prune=(42, 49), search=Annealing())``.
    """

    def __init__(
        self,
        *,
        pace: Pace | str | Mapping[str, Any] | None = "agreement",
        anneal: Window | None = None,
        dampen: Window | None = None,
        prune: Window | None = None,
        search: Annealing | Mapping[str, Any] = SEARCH,
        pruning: Pruning | None = None,
        lr: float = 0.01,
        optimizer: Optimizer = "sgd",
        weights: Weights = "samples",
        **options: Unpack[CommonOptions],
    ) -> None:
        base = stage(name="fedpace", pace=pace, optimizer=optimizer, weights=weights)
        step = {"name": "sgd", "lr": lr}
        dampened = {"sends": "gradient", "rule": "dampened", "optimizer": step, "weights": weights}
        planned: list[tuple[Window | None, dict[str, Any]]] = [
            (anneal, {**dict(base), "name": "anneal", "search": search}),
            (dampen, {**dampened, "name": "dampen"}),
            (prune, {**dampened, "name": "prune", "counts": True, "prunes": True}),
        ]
        stages = [
            stage(**{**settings, "first": window[0], "last": window[1]}) for window, settings in planned if window
        ]
        schedule = Schedule(base=base, stages=tuple(stages), pruning=None if prune is None else pruning or Pruning())
        super().__init__(schedule, sends_pace=pace is not None, **options)
