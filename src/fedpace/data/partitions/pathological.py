"""PFLlib's "pathological" label skew, with a test split per client."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedpace.data.examples import Examples, Indices
from fedpace.data.partitions._partition import Assignment, FewClassesPartition, Share, partitions

LEAST = 40  # PFLlib wants that many examples of a client, so that a quarter of them is a batch of 10


@partitions.register("pathological")
class Pathological(FewClassesPartition):
    """At most k classes per client, dealt in order, so that neighbours hold the same classes (PFLlib; used by ConFREE).

    Each of the C classes in turn is owned by the first ⌈Mk/C⌉ of M clients that have fewer than k classes. Where this
    would leave none for the last classes, which PFLlib then drops, they have fewer owners: of Flowers102, dealt to 20
    clients with 10 classes each, the last four have one instead of two, and none is lost.

    Parameters: ``clients``; ``classes_per_client``, the number k; ``sizes``: "balanced" if its owners share a class
    equally, "unbalanced" if all but the last get a random part of an equal share and the last has the rest;
    ``test_share``, a quarter of each client's examples unless it is set, out of train and test set together.

    A random part is at least a tenth of an equal share and at least m/C, where m is 40 or, if that is less, half of
    what each client would have of all examples. Where an equal share is no more than m/C, PFLlib fails; here the parts
    are nearly equal then.
    """

    test_share: Share = 0.25
    sizes: Literal["balanced", "unbalanced"] = "unbalanced"  # what PFLlib's README generates

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Find owners for one class after another, and share it out."""
        left = len(self.covered(examples))
        self.require(examples, self.classes_per_client)
        least = min(LEAST, len(examples) // self.clients // 2) // left
        most = -(-self.clients * self.classes_per_client // left)
        room = np.full(self.clients, self.classes_per_client)
        hands: list[list[Indices]] = [[] for _ in range(self.clients)]
        for indices in filter(len, examples.by_class(rng)):
            left -= 1
            owners = np.flatnonzero(room)[: min(most, room.sum() - left)]  # one place for each class that is left
            room[owners] -= 1
            for owner, part in zip(owners, self._shared(indices, len(owners), least, rng), strict=True):
                hands[owner].append(part)
        return Assignment([np.concatenate(hand) for hand in hands])

    def _shared(self, indices: Indices, owners: int, least: int, rng: np.random.Generator) -> list[Indices]:
        if self.sizes == "balanced":
            return np.array_split(indices, owners)
        equal = len(indices) // owners
        low = max(min(max(equal // 10, least), equal - 1), 1)
        return np.split(indices, np.cumsum(rng.integers(low, max(equal, low + 1), owners - 1)))
