"""Rules that step around a guidance vector so that the worst-off client gains most."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._gram_rule import GramRule
from fedpace.aggregation._projection import conflicts
from fedpace.aggregation._rule import Diagnostics
from fedpace.aggregation._simplex import Matrix, Vector, length, pgd, slsqp, vanishes
from fedpace.core import Weights

Rescale = Literal["none", "one_plus_c_squared", "one_plus_c"]
SOLVERS = {"pgd": pgd, "slsqp": slsqp}
DIVISORS: dict[Rescale, Callable[[float], float]] = {
    "none": lambda c: 1.0,
    "one_plus_c_squared": lambda c: 1 + c**2,
    "one_plus_c": lambda c: 1 + c,
}


class Guided(GramRule):
    """d* = (g + κu_w*) / r maximises minⱼ ⟨d, uⱼ⟩ over the ball ‖d − g‖ ≤ ``c``‖g‖ around the guidance g.

    w* is the mix of clients that the ball serves worst (the dual problem), κ = c‖g‖/‖u_w*‖.

    ``granularity``: of the whole ``model``, or of each ``tensor`` on its own where the caller says which there are.
    ``rescale``: r = 1, 1 + c² or 1 + c (equal clients are then averaged).
    ``client_weights``: g counts clients alike, or by ``samples``; the worst-off client is sought among all alike.
    ``solver``: ``pgd`` is exact, ``slsqp`` is what ConFREE's published code does.
    ``degenerate``: the result where u_w* = 0, the ``guidance`` or ``zero``.
    ``zero_clients``: one that sent zero gains nothing whatever the step; ``included``, it is the worst-off, and
    u_w* = 0, unless others lose by every step of the ball.
    """

    c: float = Field(0.5, ge=0, allow_inf_nan=False)  # unknown for ConFREE; CAGrad's
    granularity: Literal["model", "tensor"] = "model"
    rescale: Rescale = "none"
    client_weights: Weights = "uniform"
    solver: Literal["pgd", "slsqp"] = "pgd"
    degenerate: Literal["guidance", "zero"] = "guidance"
    zero_clients: Literal["excluded", "included"] = "excluded"

    @abstractmethod
    def guidance(self, gram: Matrix, shares: Vector) -> Vector:
        """The coefficients of g; ``shares`` are the clients' weights in a mean."""

    @property
    def caution(self) -> str | None:
        """With c ≥ 1 the ball contains steps against the guidance."""
        reason = "not below 1, so the step may turn against the guidance: d·g ≥ (1 − c)‖g‖² promises nothing"
        return f"c = {self.c:g} is {reason}" if self.c >= 1 else None

    def parts(self, tensors: Sequence[slice]) -> Sequence[slice]:
        """Each tensor, if so wished and known; a vector of which nothing is known is one tensor."""
        return tensors if self.granularity == "tensor" and tensors else super().parts(tensors)

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Guidance, worst-off mix, and the step that they make."""
        gram, clients = gram_matrix.numpy(), len(weights)
        shares = weights.numpy() if self.client_weights == "samples" else np.full(clients, 1 / clients)
        guidance = self.guidance(gram, shares)
        mix, kappa, gap = self._worst_off(gram, guidance)
        step = guidance + kappa * mix
        report = {
            **conflicts(gram, step),
            "worst_mix": mix.tolist(),
            "favoured": np.flatnonzero(kappa * mix > NOISE).tolist(),
            "duality_gap": gap,
            "mean_length": float(np.sqrt(gram.diagonal()).mean()),
        }
        if self.degenerate == "zero" and kappa == 0 and mix.any():
            step = np.zeros(clients)
        return torch.from_numpy(step / DIVISORS[self.rescale](self.c)), report

    def _worst_off(self, gram: Matrix, guidance: Vector) -> tuple[Vector, float, float | None]:
        """w*, κ, and the duality gap relative to ‖g‖ and the length of updates; κ = 0 if u_w* = 0 or there is no w*."""
        mix = np.zeros(len(guidance))
        if self.c == 0 or vanishes(gram, guidance):
            return mix, 0.0, None
        among = np.flatnonzero((gram.diagonal() > 0) | (self.zero_clients == "included"))
        mix[among], kappa = SOLVERS[self.solver](gram[np.ix_(among, among)], guidance[among], self.c)
        if vanishes(gram, mix):
            return mix, 0.0, None
        gains = gram @ (guidance + kappa * mix)
        unit = length(gram, guidance) * np.sqrt(gram.diagonal()[among].mean())
        return mix, kappa, float((mix @ gains - gains[among].min()) / unit)
