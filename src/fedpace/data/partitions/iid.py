"""Clients that agree."""

from __future__ import annotations

import numpy as np

from fedpace.data.dataset import Dataset
from fedpace.data.partitions._partition import Assignment, ClientsPartition, partitions


@partitions.register("iid")
class Iid(ClientsPartition):
    """Shuffles all examples and deals them in parts of equal size (±1): the reference without heterogeneity.

    Parameters: ``clients``.
    """

    def assign(self, dataset: Dataset, rng: np.random.Generator) -> Assignment:
        """Permute and split."""
        self.require(dataset, per_client=1)
        return Assignment(np.array_split(rng.permutation(len(dataset)), self.clients))
