"""Is a candidate better than what it is compared with?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from fedpace.core import Named, Registry


@dataclass(frozen=True)
class Candidate:
    """A point that a path of seeds leads to, its score and the clients' mean loss there."""

    path: tuple[int, ...]
    score: float
    loss: float

    @property
    def finite(self) -> bool:
        """A candidate with NaN anywhere is never accepted."""
        return isfinite(self.score) and isfinite(self.loss)


class Acceptance(Named, ABC):
    """Decides on one candidate, and on what to do when none was accepted."""

    @abstractmethod
    def accepts(self, candidate: Candidate, reference: Candidate) -> bool:
        """Whether the candidate beats the reference."""

    def rescue(self, candidates: Sequence[Candidate], reference: Candidate) -> Candidate | None:
        """The candidate to take although none was accepted; none by default."""
        return None


acceptances: Registry[Acceptance] = Registry("acceptance", Acceptance)


@acceptances.register("margin")
class Margin(Acceptance):
    """Score above the reference by more than ``beta``, loss higher by less than ``delta`` (FedPACE, Eq. 1)."""

    beta: float = 0.3
    delta: float = 0.05

    def accepts(self, candidate: Candidate, reference: Candidate) -> bool:
        """Eq. 1."""
        better = candidate.score > reference.score + self.beta
        return candidate.finite and better and candidate.loss - reference.loss < self.delta


@acceptances.register("lenient")
class Lenient(Acceptance):
    """No margin; if nothing passes, a ``best`` walk takes the best score anyway if its loss allows (authors' code)."""

    delta: float = 0.05

    def accepts(self, candidate: Candidate, reference: Candidate) -> bool:
        """Any higher score, if its loss is low enough."""
        return Margin(beta=0.0, delta=self.delta).accepts(candidate, reference)

    def rescue(self, candidates: Sequence[Candidate], reference: Candidate) -> Candidate | None:
        """The best score, if its loss is low enough."""
        best = max((c for c in candidates if c.finite), key=lambda c: c.score, default=None)
        return best if best and best.loss - reference.loss < self.delta else None
