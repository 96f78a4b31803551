"""Rules that ask whether the clients' agreement on a sign reaches a threshold."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._rule import Stream
from fedpace.aggregation._scaled import SignScaled, SignScaledStream, Votes
from fedpace.aggregation._signs import SLACK, Threshold, highest_below


class Thresholded(SignScaled):
    """A factor of 1 where the agreement reaches ``tau``; what happens elsewhere is the rule's.

    ``agreement_weights``: every client has one vote, A = |Σ sgn(uᵢ)| / N, or votes as many as it has ``samples``,
    A = |Σ pᵢ sgn(uᵢ)|, with the weights of the mean. ``threshold``: A ≥ ``tau`` passes (``inclusive``), or A > ``tau``.
    """

    tau: float = Field(0.4, ge=0, le=1)  # GMA, appendix D.1
    agreement_weights: Votes = "uniform"
    threshold: Threshold = "inclusive"

    def passing(self, counts: Tensor, clients: float) -> float:
        """The smallest count that passes: sign sums are compared as integers, weighted ones up to rounding."""
        if not counts.is_floating_point():
            return highest_below(self.tau, int(clients), self.threshold) + 1
        return (self.tau + (SLACK if self.threshold == "strict" else -SLACK)) * clients

    def tally(self, counts: Tensor, clients: float) -> dict[str, int]:
        """How many coordinates do not pass."""
        return {"below_tau": int(np.count_nonzero(counts.numpy() < self.passing(counts, clients)))}

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return SignScaledStream(self, size, clients, dtype, self.agreement_weights)
