"""The likelihood-ratio attack without models that saw the example."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpace.analysis.membership._adversary import Evidence, adversaries
from fedpace.analysis.membership.lira import Lira, moments


@adversaries.register("lira_offline")
class OfflineLira(Lira):
    """LiRA, offline (Carlini et al., 2022): is the model surer than those that did not see the example?

    An attacker can train all shadow models before it is given an example. The score is (φ − μ_out) / σ_out.
    """

    def ratio(self, seen: Evidence) -> NDArray[np.float64]:
        """How unlikely it is that a model which did not see the example is as sure of it."""
        means, deviation = moments(seen.shadows, ~seen.inside)
        return np.asarray((seen.confidences - means) / deviation, np.float64)
