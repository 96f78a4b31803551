"""FedPACE in Flower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fedpace.core import ConfigError, Perturbation
from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower._stages import Window, annealed, exchange
from fedpace.flower.strategy import ServerStrategy
from fedpace.server import Annealing, Freezing, Pace, Pruning, Schedule, Stage
from fedpace.server.annealing import Margin

SEARCH = Annealing(perturbation=Perturbation(rho=3e-4), accept=Margin(beta=0.0))
"""A search that can act; the paper's margin (beta = 0.3 at rho = 1e-5) is out of reach."""

FREEZING = Freezing(share=0.9, per_round=0.03)


class FedPACE(ServerStrategy):
    """FedPACE in stages: anneal towards agreement, dampen conflict, eliminate what persists.

    Stages are windows of rounds, (first, last), inclusive and counted from 0 (Flower's round 1 is round 0), with an
    open end if the last is ``None``. By default dampening is a ``pace`` in all rounds, see :class:`Paced`; ``anneal``
    begins rounds with the ``search`` (ClientApps need ``answer_probe``), ``freeze`` stops the coordinates in which
    clients agreed least, as ``freezing`` says. The preset ``fedpace`` is ``FedPACE(anneal=(2, 15), freeze=(20, None))``
    with ClientApps that train by ``common_adam``, which only presets on Flower's nodes (``fedpace run --engine``) do.

    The paper's own dampening and pruning are the windows ``dampen``, which scales gradients by the agreement on their
    signs and takes a step of ``lr``, and ``prune``, which does so and prunes as ``pruning`` says (both need
    ``gradient_reply``). Its run is ``FedPACE(pace=None, anneal=(2, 15), dampen=(20, 41), prune=(42, 49),
    search=Annealing(), weights="uniform")``.
    """

    def __init__(
        self,
        *,
        pace: Pace | str | Mapping[str, Any] | None = "agreement",
        anneal: Window | None = None,
        dampen: Window | None = None,
        prune: Window | None = None,
        freeze: Window | None = None,
        search: Annealing | Mapping[str, Any] = SEARCH,
        pruning: Pruning | None = None,
        freezing: Freezing | Mapping[str, Any] = FREEZING,
        lr: float = 0.01,
        optimizer: Optimizer = "sgd",
        weights: Weights = "samples",
        **options: Unpack[CommonOptions],
    ) -> None:
        if freeze is not None and pace is None:
            raise ConfigError("FedPACE: freeze ranks coordinates by what the pace remembers; expected a pace")
        base = exchange(pace=pace, optimizer=optimizer, weights=weights)
        dampened = {"sends": "gradient", "rule": "dampened", "optimizer": {"name": "sgd", "lr": lr}, "weights": weights}
        stages = [] if anneal is None else [annealed(anneal, search, base)]
        for name, window, found in (
            ("dampen", dampen, exchange(**dampened)),
            ("prune", prune, exchange(**dampened, counts=True, prunes=True)),
            ("freeze", freeze, exchange(**{**dict(base), "freezes": freezing})),
        ):
            if window is not None:
                stages.append(Stage(name=name, first=window[0], last=window[1], exchanges=(found,)))
        schedule = Schedule(
            base=Stage(name="fedpace", exchanges=(base,)),
            stages=tuple(stages),
            pruning=None if prune is None else pruning or Pruning(),
        )
        super().__init__(schedule, sends_pace=pace is not None, **options)
