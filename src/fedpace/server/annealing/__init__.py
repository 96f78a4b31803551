"""Fed-GGA: a search composed of a perturbation, a score, an acceptance and a walk."""

from fedpace.server.annealing.acceptance import Acceptance, Candidate, Lenient, Margin, acceptances
from fedpace.server.annealing.annealing import Annealing, Search, StaleSum
from fedpace.server.annealing.score import InterClient, Score, SelfSimilarity, pairwise, scores
from fedpace.server.annealing.walk import Best, RandomWalk, Ratchet, SeedPath, Walk, walks

__all__ = [
    "Acceptance",
    "Annealing",
    "Best",
    "Candidate",
    "InterClient",
    "Lenient",
    "Margin",
    "RandomWalk",
    "Ratchet",
    "Score",
    "Search",
    "SeedPath",
    "SelfSimilarity",
    "StaleSum",
    "Walk",
    "acceptances",
    "pairwise",
    "scores",
    "walks",
]
