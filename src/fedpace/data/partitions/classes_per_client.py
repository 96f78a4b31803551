"""A few classes per client, by ownership."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpace.core import PartitionError
from fedpace.data._names import listed
from fedpace.data.examples import Examples, Indices
from fedpace.data.partitions._partition import Assignment, FewClassesPartition, partitions


@partitions.register("classes_per_client")
class ClassesPerClient(FewClassesPartition):
    """Each client owns k classes, and a class is shared equally by its owners (#C=k of NIID-Bench; Li et al., 2022).

    Client i owns class i mod C and k - 1 random others. Unlike a client of :class:`SortedShards`, it never sees
    more than k classes, but sizes differ with the number of owners. With fewer clients than classes, a class may find
    no owner; NIID-Bench then loses its examples, here it is an error.

    Parameters: ``clients``; ``classes_per_client``, the number k.
    """

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Choose the owners of all classes, then share out class by class."""
        classes = self.present(examples)
        self.require(examples, self.classes_per_client)
        owns = self._choose(len(classes), rng)
        orphans = [examples.classes[label] for label in classes[~owns.any(axis=0)]]
        if orphans:
            what = "class" if len(orphans) == 1 else "classes"
            raise PartitionError(
                f"partition 'classes_per_client': no client owns {what} {listed(orphans)}; use more clients (with "
                f"{len(classes)} every class has an owner) or more than {self.classes_per_client} classes per client"
            )
        hands: list[list[Indices]] = [[] for _ in range(self.clients)]
        for indices, owned in zip(filter(len, examples.by_class(rng)), owns.T, strict=True):
            owners = rng.permutation(np.flatnonzero(owned))  # what does not divide goes to nobody in particular
            for owner, part in zip(owners, np.array_split(indices, len(owners)), strict=True):
                hands[owner].append(part)
        return Assignment([np.concatenate(hand) for hand in hands])

    def _choose(self, classes: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Who owns what, clients × classes."""
        owns = np.zeros((self.clients, classes), dtype=bool)
        for client, row in enumerate(owns):
            own = client % classes
            others = rng.choice(np.delete(np.arange(classes), own), self.classes_per_client - 1, replace=False)
            row[[own, *others]] = True
        return owns
