"""PFLlib's "practical" label skew, with a test split per client."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedpace.core import PartitionError
from fedpace.data.examples import Examples, Indices
from fedpace.data.partitions._partition import Assignment, ClientsPartition, Concentration, Share, partitions

RETRIES = 500


@partitions.register("practical")
class Practical(ClientsPartition):
    """Dirichlet shares of each class, skipping clients that have their part already (PFLlib; used by ConFREE).

    Class by class, p ~ Dir(α) is set to zero for clients that hold n/M examples or more and renormalised, so sizes
    differ by less than in :class:`Dirichlet`, and the order of the classes matters. The deal is repeated until every
    client has ``min_size`` examples, or half of n/M if that is less.

    As in PFLlib, cuts are rounded down and the last client gets the rest of each class. It has one example even of
    classes of which its share is next to nothing, and so more classes than others: of ten, among 20 clients at α = 0.1,
    about 8 instead of 5.

    Parameters: ``clients``; ``alpha``; ``min_size`` (40 is PFLlib's value for batches of 10); ``test_share``, a quarter
    of each client's examples unless it is set, out of train and test set together.
    """

    test_share: Share = 0.25
    alpha: Concentration = 0.1
    min_size: int = Field(40, ge=2)

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Deal until everyone has enough."""
        self.require(examples, per_client=4)
        enough = min(self.min_size, len(examples) // self.clients // 2)
        for _ in range(RETRIES):
            hands = self._deal(examples, rng)
            if hands is not None and min(map(len, hands)) >= enough:
                return Assignment(hands)
        raise PartitionError(
            f"partition 'practical': {RETRIES} deals left a client of {self.clients} with fewer than {enough} "
            f"examples at alpha={self.alpha}; use fewer clients, a larger alpha or a smaller min_size"
        )

    def _deal(self, examples: Examples, rng: np.random.Generator) -> list[Indices] | None:
        """One deal, or None if a class went wholly to clients that take no more (PFLlib divides by zero there)."""
        hands: list[list[Indices]] = [[] for _ in range(self.clients)]
        for indices in filter(len, examples.by_class(rng)):  # a class without examples may find nobody with room
            has_room = [sum(map(len, hand)) < len(examples) / self.clients for hand in hands]
            *ends, total = np.cumsum(rng.dirichlet(np.full(self.clients, self.alpha)) * has_room)
            if not total > 0:
                return None
            # Sums that are equal stay so when divided: who has no room gets nothing, not even what rounding leaves.
            cuts = (np.array(ends) / total * len(indices)).astype(np.int64)
            for hand, part in zip(hands, np.split(indices, cuts), strict=True):
                hand.append(part)
        return [np.concatenate(hand) for hand in hands]
