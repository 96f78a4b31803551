"""Membership inference: how well can an attacker tell from a model's outputs what it was trained on?"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpace.core import ConfigError, numpy_stream

LEAST = 20  # of each kind: with fewer, the standard error is above a tenth and the accuracy says nothing


@dataclass(frozen=True)
class MembershipAttack:
    """How well an attack did. An attacker who guesses has an accuracy and an AUC of one half.

    Attributes:
        accuracy: Share of the tested examples, half of them members, that the attacker classifies correctly.
        error: Binomial standard error of the accuracy.
        auc: Area under the ROC curve: how often a member looks more like one than an example that is none.
        examples: Number of members, and of others, that were used; half of each tested the attacker.

    """

    accuracy: float
    error: float
    auc: float
    examples: int


def membership_attack(members: ArrayLike, others: ArrayLike, *, seed: int = 0) -> MembershipAttack:
    """Attack a model by its logits on examples that it was trained on (``members``) and on ``others``.

    The black-box attack of gradient masked averaging (Tenison et al., 2023, appendix F; after Tople et al., 2020): a
    logistic regression on the logits. The paper leaves the split open; here equal numbers of both kinds are drawn, one
    half trains the attacker and the other half tests it, and the first one's mean and deviation standardise both.

    >>> logits = np.random.default_rng(0).normal(size=(40, 3))
    >>> membership_attack(logits + 10, logits)
    MembershipAttack(accuracy=1.0, error=0.0, auc=1.0, examples=40)
    """
    # Here, because it takes longer to import than all of our own code.
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kinds = [_finite(kind) for kind in (members, others)]
    count = equal_number(*map(len, kinds))
    rng = numpy_stream(seed, "membership")
    drawn = [rng.permutation(kind)[:count] for kind in kinds]
    half = count // 2
    inputs, test_inputs = (np.concatenate([kind[part] for kind in drawn]) for part in (np.s_[:half], np.s_[half:]))
    labels, test_labels = (np.repeat([1, 0], size) for size in (half, count - half))

    attacker = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)).fit(inputs, labels)
    accuracy = float(attacker.score(test_inputs, test_labels))
    error = sqrt(accuracy * (1 - accuracy) / len(test_labels))
    auc = float(roc_auc_score(test_labels, attacker.decision_function(test_inputs)))
    return MembershipAttack(accuracy, error, auc, count)


def equal_number(members: int, others: int) -> int:
    """How many of each kind an attack uses of so many; too few are refused."""
    if min(members, others) < LEAST:
        raise ConfigError(
            f"membership attack: expected at least {LEAST} members and {LEAST} others, found {members} and {others}"
        )
    return min(members, others)


def _finite(logits: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(logits, np.float64)
    if not np.isfinite(found).all():
        raise ConfigError("membership attack: expected finite logits, found NaN or infinity; the training diverged")
    return found
