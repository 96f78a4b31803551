"""A few classes per client, by sorting."""

from __future__ import annotations

import numpy as np

from fedpace.data.examples import Examples
from fedpace.data.partitions._partition import Assignment, FewClassesPartition, partitions


@partitions.register("shards")
class SortedShards(FewClassesPartition):
    """Sorts by label, cuts into equal shards and deals each client k of them (McMahan et al., 2017; label skew of GMA).

    A client sees at most k classes where the shards fit into the classes; a shard that straddles two adds one. Fewer
    shards than classes would hold several classes each, and are an error.

    Parameters: ``clients``; ``classes_per_client``, the number k of shards.
    """

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Cut and deal."""
        number = self.clients * self.classes_per_client
        self.covered(examples)
        self.require(examples, self.classes_per_client)
        shards = np.array_split(np.concatenate(examples.by_class(rng)), number)
        dealt = rng.permutation(number).reshape(self.clients, self.classes_per_client)
        return Assignment([np.concatenate([shards[shard] for shard in hand]) for hand in dealt])
