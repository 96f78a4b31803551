"""How similar are the clients' gradients at a candidate point?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from fedpace.aggregation import cosines, gram, pairs
from fedpace.core import Named, Registry


class Score(Named, ABC):
    """A number per candidate (larger is better), and the number that candidates have to beat."""

    @abstractmethod
    def candidate(self, gradients: Tensor, reference: Tensor) -> float:
        """Score of a candidate from the clients' gradients there and at θ (rows are clients)."""

    @abstractmethod
    def to_beat(self, reference: Tensor) -> float:
        """The score at θ itself."""


scores: Registry[Score] = Registry("score", Score)


def pairwise(gradients: Tensor) -> Tensor:
    """Cosines of all pairs of different rows."""
    return pairs(cosines(gram(gradients)))


@scores.register("inter_client")
class InterClient(Score):
    """Cosine between clients, reduced over all pairs: ``mean`` (FedPACE's text) or ``min`` (its Algorithm 1, GGA)."""

    reduce: Literal["mean", "min"] = "mean"

    def candidate(self, gradients: Tensor, reference: Tensor) -> float:
        """Reduced pairwise cosine at the candidate."""
        return float(getattr(pairwise(gradients), self.reduce)())

    def to_beat(self, reference: Tensor) -> float:
        """Reduced pairwise cosine at θ."""
        return self.candidate(reference, reference)


@scores.register("self")
class SelfSimilarity(Score):
    """Mean cosine of each client's gradient with its *own* gradient at θ (the authors' code).

    It is close to one for any small perturbation, while the number to beat is the lowest cosine between clients: this
    score accepts nearly always, and prefers the perturbation that changes the gradients least.
    """

    def candidate(self, gradients: Tensor, reference: Tensor) -> float:
        """Mean cosine of each client with itself."""
        return float(torch.cosine_similarity(gradients.double(), reference.double(), dim=1, eps=1e-12).mean())

    def to_beat(self, reference: Tensor) -> float:
        """Lowest pairwise cosine at θ."""
        return float(pairwise(reference).min())
