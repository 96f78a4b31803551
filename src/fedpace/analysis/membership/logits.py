"""The attack of gradient masked averaging."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpace.analysis.membership._adversary import Adversary, Evidence, Scores, adversaries


@adversaries.register("logits")
class Logits(Adversary):
    """A logistic regression on the logits (Tenison et al., 2023, appendix F; after Tople et al., 2020).

    It does not look at the right class, and so sees little. The paper leaves open how logits are standardised; here
    the mean and deviation of what the attacker is trained on do that.
    """

    def trained(self, members: Evidence, others: Evidence) -> Scores:
        """Fit the regression."""
        # Here, because it takes longer to import than all of our own code.
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        inputs = np.concatenate([members.outputs, others.outputs])
        labels = np.repeat([1, 0], [len(members), len(others)])
        fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)).fit(inputs, labels)

        def score(seen: Evidence) -> NDArray[np.float64]:
            return np.asarray(fitted.decision_function(seen.outputs), np.float64)

        return score
