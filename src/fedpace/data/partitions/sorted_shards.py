"""A few classes per client, by sorting."""

from __future__ import annotations

import numpy as np

from fedpace.data.examples import Examples
from fedpace.data.hands import Hands, even_sizes
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
        shards = Hands.dealt(np.concatenate(examples.by_class(rng)), even_sizes(len(examples), number))
        return Assignment(shards.chosen(rng.permutation(number)).merged(self.classes_per_client))
