"""How well an attack does."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from fedpace.analysis.membership._adversary import Adversary, Evidence
from fedpace.analysis.membership.logits import Logits
from fedpace.core import ConfigError, numpy_stream

LEAST = 20  # of each kind: with fewer, the standard error is above a tenth and the accuracy says nothing
RARELY = 0.01  # the share of others at which hits are counted (Carlini et al., 2022)


@dataclass(frozen=True)
class MembershipAttack:
    """How well an attack did. An attacker who guesses has an accuracy and an AUC of one half, and hits of 1 %.

    Attributes:
        accuracy: Share of the tested examples, half of them members, that the attacker classifies correctly.
        error: Binomial standard error of the accuracy.
        auc: Area under the ROC curve: how often a member looks more like one than an example that is none.
        examples: Number of members, and of others, that were used; half of each tested the attacker.
        auc_error: Standard error of the AUC (Hanley and McNeil, 1982).
        hits: Share of the members that are found where at most 1 % of the others are taken for members.
        hits_error: Binomial standard error of the hits.

    """

    accuracy: float
    error: float
    auc: float
    examples: int
    auc_error: float = 0.0
    hits: float = 0.0
    hits_error: float = 0.0


def attacked(adversary: Adversary, members: Evidence, others: Evidence, *, seed: int = 0) -> MembershipAttack:
    """Attack a model by what is seen of examples that it was trained on (``members``) and of ``others``.

    Equal numbers of both kinds are drawn; one half trains the attacker and the other half tests it.
    """
    from sklearn.metrics import roc_auc_score, roc_curve

    for kind in (members, others):
        kind.check_finite()
    count = equal_number(len(members), len(others))
    rng = numpy_stream(seed, "membership")
    drawn = [(kind, rng.permutation(len(kind))[:count]) for kind in (members, others)]
    half = count // 2
    scores = adversary.trained(*(kind.at(positions[:half]) for kind, positions in drawn))
    found = np.concatenate([scores(kind.at(positions[half:])) for kind, positions in drawn])

    tested = count - half
    labels = np.repeat([1, 0], tested)
    accuracy, auc = float(((found > 0) == labels).mean()), float(roc_auc_score(labels, found))
    wrongly, rightly, _ = roc_curve(labels, found, drop_intermediate=False)
    hits = float(rightly[wrongly <= RARELY].max())
    return MembershipAttack(
        accuracy,
        _binomial_error(accuracy, 2 * tested),
        auc,
        count,
        _auc_error(auc, tested),
        hits,
        _binomial_error(hits, tested),
    )


def membership_attack(members: ArrayLike, others: ArrayLike, *, seed: int = 0) -> MembershipAttack:
    """Attack a model by its logits on ``members`` and ``others`` alone (:class:`Logits`).

    >>> logits = np.random.default_rng(0).normal(size=(40, 3))
    >>> found = membership_attack(logits + 10, logits)
    >>> found.accuracy, found.auc, found.hits, found.examples
    (1.0, 1.0, 1.0, 40)
    """
    kinds = [Evidence(np.asarray(kind, np.float64)) for kind in (members, others)]
    return attacked(Logits(), *kinds, seed=seed)


def equal_number(members: int, others: int) -> int:
    """How many of each kind an attack uses of so many; too few are refused."""
    if min(members, others) < LEAST:
        raise ConfigError(
            f"membership attack: expected at least {LEAST} members and {LEAST} others, found {members} and {others}"
        )
    return min(members, others)


def _binomial_error(share: float, count: int) -> float:
    return sqrt(share * (1 - share) / count)


def _auc_error(auc: float, count: int) -> float:
    """For ``count`` examples of each kind."""
    one, two = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    return sqrt(max(auc * (1 - auc) + (count - 1) * (one + two - 2 * auc**2), 0.0)) / count
