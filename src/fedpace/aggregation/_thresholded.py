"""Rules that ask whether the clients' agreement on a sign reaches a threshold."""

from __future__ import annotations

import torch
from pydantic import Field

from fedpace.aggregation._rule import Quantity, Stream
from fedpace.aggregation._scaled import SignScaled, SignScaledStream
from fedpace.aggregation._signs import SLACK, Threshold, highest_below
from fedpace.core import Weights


class Thresholded(SignScaled):
    """A factor of 1 where the agreement reaches ``tau``; what happens elsewhere is the rule's.

    ``agreement_weights``: every client has one vote, A = |Σ sgn(uᵢ)| / N, or votes as many as it has ``samples``,
    A = |Σ pᵢ sgn(uᵢ)|, with the weights of the mean. ``threshold``: A ≥ ``tau`` passes (``inclusive``), or A > ``tau``.
    """

    tau: float = Field(0.4, ge=0, le=1)  # GMA, appendix D.1
    agreement_weights: Weights = "uniform"
    threshold: Threshold = "inclusive"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Signs, and where clients have votes by samples, these."""
        return ("signs", "votes") if self.agreement_weights == "samples" else ("signs",)

    def enough(self, all_votes: float) -> float:
        """Where the threshold lies: sign sums are compared as integers, weighted shares up to rounding."""
        if isinstance(all_votes, int):
            return highest_below(self.tau, all_votes, self.threshold) + 1
        return self.tau + (SLACK if self.threshold == "strict" else -SLACK)

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        return SignScaledStream(self, size, clients, dtype, self.agreement_weights)
