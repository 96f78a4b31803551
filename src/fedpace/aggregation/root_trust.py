"""Trust from a root of the server's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._distances import DistanceRule
from fedpace.aggregation._gram import Rows, cosines
from fedpace.aggregation._gram_rule import GramStream
from fedpace.aggregation._rule import Diagnostics, rules

SHORTEST = 1e-30  # relative to the root: what is shorter has no direction that could be lengthened


@rules.register("root_trust")
class RootTrust(DistanceRule):
    """Clients count as far as they go where the server's own examples lead (FLTrust, Cao et al. 2021).

    u₀ is what the ``client`` sends that the server trusts, because it trains on examples that somebody has looked at;
    it takes part in every round. tᵢ = max(0, cos(uᵢ, u₀)); the result is Σ tᵢ · uᵢ‖u₀‖/‖uᵢ‖ / Σ tᵢ. So the step is no
    longer than u₀, whoever attacks, and as good as the root's examples are: they must be of the kind that the model is
    for. The root counts as one of the clients, with trust 1 (FLTrust leaves it out). Without it there is no step.
    Samples do not count. Memory: N vectors. Time: N²d.

    >>> RootTrust()(torch.tensor([[1.0, 0.0], [900.0, 0.0], [-5.0, 1.0]]))
    tensor([1., 0.])
    """

    client: int = Field(0, ge=0)

    @property
    def trusted(self) -> int:
        """The root."""
        return self.client

    def bears(self, clients: int) -> int:
        """All but the root."""
        return max(clients - 1, 0)

    def taken(self, rows: Rows, weights: list[float]) -> GramStream:
        """A stream of these rows."""
        return _RootStream(self, rows, weights)

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> GramStream:
        """Begin a stream."""
        return _RootStream(self, Rows(size, clients, dtype), [])

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Those of clients that are numbered as they come."""
        return trusting(gram_matrix, range(len(weights)), self.client)


class _RootStream(GramStream):
    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        numbers = range(len(weights)) if self.clients is None else self.clients
        return trusting(gram_matrix, numbers, self._rule.trusted)


def trusting(gram_matrix: Tensor, numbers: Sequence[int], root: int | None) -> tuple[Tensor, Diagnostics]:
    """The coefficients of a step that follows one of the clients, of these ``numbers``."""
    if root not in numbers:
        return torch.zeros_like(gram_matrix.diagonal()), {"trust": [0.0] * len(numbers)}
    at = numbers.index(root)
    lengths = gram_matrix.diagonal().sqrt()
    moved = lengths > SHORTEST * lengths[at]
    trust = cosines(gram_matrix)[at].clamp_min(0) * moved
    scale = torch.where(moved, lengths[at] / lengths, 0.0)
    shares = trust / trust.sum() if trust.any() else trust
    return shares * scale, {"trust": trust.tolist()}
