"""Where are candidates tried, and which of the accepted ones is taken?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from fedpace.core import Named, Registry
from fedpace.server.annealing.acceptance import Acceptance, Candidate

SeedPath = tuple[int, ...]
Steps = Generator[Sequence[SeedPath], Iterator[Candidate], Candidate | None]
"""A walk under way: it yields paths to try, is sent the candidates there, and ends with the one to move to."""


class Walk(Named, ABC):
    """Tries a candidate per seed and returns the one to move to, or ``None``."""

    @abstractmethod
    def search(self, seeds: Sequence[int], reference: Candidate, accept: Acceptance) -> Steps:
        """Search from ``reference``, the candidate at θ with the empty path."""


walks: Registry[Walk] = Registry("walk", Walk)


@walks.register("best")
class Best(Walk):
    """All candidates around θ; the best score among the accepted ones (ties: the first). Independent of their order."""

    def search(self, seeds: Sequence[int], reference: Candidate, accept: Acceptance) -> Steps:
        """Take the best accepted candidate."""
        candidates = list((yield [(seed,) for seed in seeds]))
        accepted = [candidate for candidate in candidates if accept.accepts(candidate, reference)]
        if accepted:
            return max(accepted, key=lambda candidate: candidate.score)
        return accept.rescue(candidates, reference)


@walks.register("ratchet")
class Ratchet(Walk):
    """All candidates around θ, in order; each must beat the last accepted score (FedPACE's Algorithm 1, literally)."""

    def search(self, seeds: Sequence[int], reference: Candidate, accept: Acceptance) -> Steps:
        """Take the last accepted candidate."""
        taken, to_beat = None, reference
        for candidate in (yield [(seed,) for seed in seeds]):
            if accept.accepts(candidate, to_beat):
                taken, to_beat = candidate, replace(candidate, loss=reference.loss)  # the loss stays measured from θ
        return taken


@walks.register("random_walk")
class RandomWalk(Walk):
    """Each candidate starts where the last rejected one ended; an accepted one returns to θ (GGA, Ballas & Diou)."""

    def search(self, seeds: Sequence[int], reference: Candidate, accept: Acceptance) -> Steps:
        """Walk, remembering the last accepted candidate, whose score and loss the next must beat."""
        taken, to_beat = None, reference
        path: SeedPath = ()
        for seed in seeds:
            path = (*path, seed)
            (candidate,) = yield [path]
            if accept.accepts(candidate, to_beat):
                taken = to_beat = candidate
                path = ()
        return taken
