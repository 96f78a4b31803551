"""A few classes per client, by sorting."""

from __future__ import annotations

import numpy as np

from fedpace.data.dataset import Dataset
from fedpace.data.partitions._partition import Assignment, FewClassesPartition, partitions


@partitions.register("shards")
class Shards(FewClassesPartition):
    """Sorts by label, cuts into equal shards and deals each client k of them (McMahan et al., 2017; label skew of GMA).

    A client sees at most k classes where the shards fit into the classes; a shard that straddles two adds one. Fewer
    shards than classes would hold several classes each, and are an error.

    Parameters: ``clients``; ``classes_per_client``, the number k of shards.
    """

    def assign(self, dataset: Dataset, rng: np.random.Generator) -> Assignment:
        """Cut and deal."""
        number = self.clients * self.classes_per_client
        self.covered(dataset)
        self.require(dataset, self.classes_per_client)
        shards = np.array_split(np.concatenate(dataset.by_class(rng)), number)
        dealt = rng.permutation(number).reshape(self.clients, self.classes_per_client)
        return Assignment([np.concatenate([shards[shard] for shard in hand]) for hand in dealt])
