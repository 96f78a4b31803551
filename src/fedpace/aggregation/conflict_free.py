"""ConFREE."""

from __future__ import annotations

from typing import Literal

from fedpace.aggregation._guided import Guided
from fedpace.aggregation._projection import sequential, sequential_unnormalised, simultaneous
from fedpace.aggregation._rule import rules
from fedpace.aggregation._simplex import Matrix, Vector


@rules.register("conflict_free")
class ConflictFree(Guided):
    """A step near the mean of conflict-free updates that serves the worst-off client best (ConFREE, Zheng et al. 2025).

    uᵢ⊥ = uᵢ − Σⱼ ⟨uᵢ, uⱼ⟩/‖uⱼ‖² uⱼ over the j with ⟨uᵢ, uⱼ⟩ < 0; guidance g = Σ pᵢuᵢ⊥; then the step of
    :class:`Guided`, which has the other parameters. The defaults are the poster's. With three clients or more g, and
    even d*, can conflict with a client: "conflict-free" is an aim, and the diagnostics say how far it was reached.
    Where nothing conflicts, g is the mean, but d* is not: one client alone gives (1 + c)u.

    ``projection``: ``simultaneous`` (all inner products of original updates), ``sequential`` (as in PCGrad, in an order
    drawn from ``seed``, the same in every round), or ``sequential_unnormalised`` (the published code's: without the
    division by ‖uⱼ‖²).

    >>> import torch
    >>> ConflictFree(c=0)(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    tensor([0.2500, 0.7500])
    """

    projection: Literal["simultaneous", "sequential", "sequential_unnormalised"] = "simultaneous"
    seed: int = 0

    def guidance(self, gram: Matrix, shares: Vector) -> Vector:
        """The mean of the projected updates."""
        if self.projection == "simultaneous":
            return simultaneous(gram, shares)
        return {"sequential": sequential, "sequential_unnormalised": sequential_unnormalised}[self.projection](
            gram, shares, self.seed
        )
