"""The likelihood-ratio attack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpace.analysis.membership._adversary import Adversary, Evidence, Scores, adversaries, with_threshold
from fedpace.tasks import Task


@adversaries.register("lira")
class Lira(Adversary):
    """LiRA, online (Carlini et al., 2022): is the model as sure as those that saw the example, or as the others?

    The attacker trains shadow models, each on a half of the examples, so that each example is in one half of
    them. With φ = log(p / (1 − p)), where p is the probability of the right class, an example's score is
    log N(φ; μ_in, σ_in²) − log N(φ; μ_out, σ_out²). Means are those of the example. With few shadow models, deviations
    are shared by all examples (the paper, section VI.C).

    Parameters: ``shadows``, the number of models; each costs about as much as the run. The paper uses up to 256.
    """

    shadows: int = Field(8, ge=4, multiple_of=2)

    @property
    def models(self) -> int:
        """As many as configured."""
        return self.shadows

    def unfit_for(self, task: Task) -> str | None:
        """It needs the probability of the right class."""
        if task.classes:
            return None
        return f"'{self.registered_name()}' needs the probability of one class per example; expected attack 'loss'"

    def trained(self, members: Evidence, others: Evidence) -> Scores:
        """The ratio is told by the shadow models alone; only the threshold is learnt here."""
        return with_threshold(self.ratio, members, others)

    def ratio(self, seen: Evidence) -> NDArray[np.float64]:
        """Of the likelihoods, as a logarithm."""
        inside, outside = moments(seen.shadows, seen.inside), moments(seen.shadows, ~seen.inside)
        return _log_likelihood(seen.confidences, *inside) - _log_likelihood(seen.confidences, *outside)


def moments(values: NDArray[np.float64], where: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """The mean of each row's values, and the deviation from it that is common to all rows."""
    counts = where.sum(1)
    means = np.where(where, values, 0).sum(1) / counts
    squares = np.where(where, values - means[:, None], 0) ** 2
    return means, max(float(np.sqrt(squares.sum() / (counts - 1).sum())), 1e-6)


def _log_likelihood(values: NDArray[np.float64], means: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Of a normal distribution, without what is the same for all."""
    return np.asarray(-(((values - means) / deviation) ** 2) / 2 - np.log(deviation), np.float64)
