"""Clients that agree but differ in size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpace.core import PartitionError
from fedpace.data.examples import Examples
from fedpace.data.hands import Hands
from fedpace.data.partitions._partition import Assignment, ClientsPartition, Concentration, partitions
from fedpace.data.partitions.dirichlet import largest_remainders

RETRIES = 1000


@partitions.register("quantity")
class Quantity(ClientsPartition):
    """Sizes by p ~ Dir(β), labels alike: quantity skew (NIID-Bench; Li et al., 2022; used by GMA with β = 0.5).

    p is drawn until every client has ``min_size`` examples.

    Parameters: ``clients``; ``beta``, small for few large clients and many small ones; ``min_size``.
    """

    beta: Concentration = 0.5
    min_size: int = Field(10, ge=1)

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Draw the sizes, permute and split."""
        self.require(examples, self.min_size)
        sizes = largest_remainders(self._shares(len(examples), rng), len(examples))
        return Assignment(Hands.dealt(rng.permutation(len(examples)), sizes))

    def _shares(self, examples: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw p ~ Dir(β) on condition that its smallest share is enough.

        p is independent gamma variables over their sum, and independent of that sum, which may therefore be required to
        reach its mean. Then no gamma below ``floor`` can be enough, and drawing only from above it changes nothing but
        the number of futile draws: for 100 clients of CIFAR-10 and β = 0.5, one plain draw in 200,000 is accepted.
        """
        from scipy.special import gammaincc, gammainccinv  # here, because SciPy is slow to import

        enough = self.min_size / examples
        mean = self.clients * self.beta
        floor = enough * mean
        for _ in range(RETRIES):
            uniform = 1 - rng.random(self.clients)
            gammas = gammainccinv(self.beta, uniform * gammaincc(self.beta, floor))
            shares: NDArray[np.float64] = gammas / gammas.sum()
            if gammas.sum() >= mean and shares.min() >= enough:
                return shares
        raise PartitionError(
            f"partition 'quantity': {RETRIES} draws left a client of {self.clients} with fewer than {self.min_size} of "
            f"{examples} examples at beta={self.beta}; use fewer clients, a larger beta or a smaller min_size"
        )
