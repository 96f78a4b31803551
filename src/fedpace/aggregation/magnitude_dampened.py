"""Dampening by agreement that knows how large the clients' values are."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.aggregation._magnitude import MagnitudeAgreement
from fedpace.aggregation._rule import Quantity, Rule, ScaledStream, Stream, Sums, rules


@rules.register("magnitude_dampened")
class MagnitudeDampened(Rule):
    """Each coordinate of the mean is scaled by how much of the clients' movement survives in it (ours).

    A = |Σ pᵢuᵢ| / Σ pᵢ|uᵢ|, result Δ ⊙ A with Δ = Σ pᵢuᵢ. Memory: two vectors, and a third while a client is added.
    Time: O(Nd).

    >>> MagnitudeDampened()(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3.0000, -0.4286])
    """

    @property
    def beyond_sums(self) -> None:
        """Nothing: it is made of sums of updates and of their sizes."""

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Sizes."""
        return ("sizes",)

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return _MagnitudeStream(size, dtype)


class _MagnitudeStream(ScaledStream):
    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._agreement = MagnitudeAgreement(size, dtype)

    def add(self, update: Tensor, weight: float = 1.0) -> None:
        self._agreement.add(update, weight)

    def absorb(self, sums: Sums) -> None:
        self._agreement.absorb(sums)

    def split(self) -> tuple[Tensor, Tensor]:
        mean, agreement = self._agreement.finish()
        self.diagnostics = {"mean_factor": float(agreement.sum()) / max(len(mean), 1)}
        return mean, agreement
