"""Clients that agree."""

from __future__ import annotations

import numpy as np

from fedpace.data.examples import Examples
from fedpace.data.hands import Hands, even_sizes
from fedpace.data.partitions._partition import Assignment, ClientsPartition, partitions


@partitions.register("iid")
class Iid(ClientsPartition):
    """Shuffles all examples and deals them in parts of equal size (±1): the reference without heterogeneity.

    Parameters: ``clients``.
    """

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Permute and split."""
        self.require(examples, per_client=1)
        return Assignment(Hands.dealt(rng.permutation(len(examples)), even_sizes(len(examples), self.clients)))
