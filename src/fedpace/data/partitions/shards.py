"""A few classes per client."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedpace.data.dataset import Dataset
from fedpace.data.partitions._partition import Assignment, ClientsPartition, partitions


@partitions.register("shards")
class Shards(ClientsPartition):
    """Sorts by label, cuts into equal shards and deals each client k of them (McMahan et al., 2017; label skew of GMA).

    A client sees at most k classes where the shards fit into the classes; a shard that straddles two adds one.

    Parameters: ``clients``; ``classes_per_client``, the number k of shards.
    """

    classes_per_client: int = Field(2, ge=1)

    def assign(self, dataset: Dataset, rng: np.random.Generator) -> Assignment:
        """Cut and deal."""
        self.require(dataset, self.classes_per_client)
        shards = np.array_split(np.concatenate(dataset.by_class(rng)), self.clients * self.classes_per_client)
        dealt = rng.permutation(len(shards)).reshape(self.clients, self.classes_per_client)
        return Assignment([np.concatenate([shards[shard] for shard in hand]) for hand in dealt])
