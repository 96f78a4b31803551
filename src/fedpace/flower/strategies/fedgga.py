"""Federated gradient-guided annealing in Flower."""

from __future__ import annotations

from typing import Unpack

from fedpace.flower._options import CommonOptions, Optimizer, Weights
from fedpace.flower._stages import annealed, exchange
from fedpace.flower.strategy import ServerStrategy
from fedpace.server import Schedule, Stage


class FedGGA(ServerStrategy):
    """FedAvg that first looks around θ for a point where the clients' gradients agree better (Fed-GGA).

    The rounds ``first`` to ``last`` (inclusive, from 0; open end if ``None``) begin with a search: ``k`` perturbations
    of relative size ``rho``, of which the one is taken at which the clients' mean cosine is highest, if it beats that
    at θ by ``beta`` and the loss rises by less than ``delta``. ``batch`` is the wished size of the batch that each
    client judges them on; with a ``sketch`` it sends so many numbers instead of each gradient. See
    :class:`fedpace.server.Annealing`.

    ClientApps answer probes by :func:`fedpace.flower.answer_probe` in ``@app.train("probe")``: two messages in a round
    that searches, one for θ and one for all candidates. Without it rounds are FedAvg's, with a warning.
    """

    def __init__(
        self,
        *,
        first: int = 2,
        last: int | None = 15,
        k: int = 8,
        rho: float = 3e-4,
        beta: float = 0.0,
        delta: float = 0.05,
        batch: int = 32,
        sketch: int | None = None,
        optimizer: Optimizer = "sgd",
        weights: Weights = "samples",
        **options: Unpack[CommonOptions],
    ) -> None:
        accept = {"name": "margin", "beta": beta, "delta": delta}
        search = {"k": k, "perturbation": {"rho": rho}, "accept": accept, "batch": batch, "sketch": sketch}
        base = exchange(optimizer=optimizer, weights=weights)
        stages = (annealed((first, last), search, base),)
        super().__init__(Schedule(base=Stage(exchanges=(base,)), stages=stages), **options)
