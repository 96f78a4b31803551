"""Label skew by Dirichlet shares of each client, at equal sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpace.data.examples import Examples, Indices
from fedpace.data.partitions._partition import Assignment, ClientsPartition, Concentration, partitions


@partitions.register("dirichlet_hsu")
class DirichletHsu(ClientsPartition):
    """Clients of equal size, each with its own mixture of classes q ~ Dir(α prior) (Hsu et al., 2019).

    The prior is the share of each class in the data. One client after the other draws its examples by q; a class that
    is used up is removed and q renormalised, so the last clients take what is left.

    Parameters: ``clients``; ``alpha``, the total concentration: over C classes of equal size, each has α / C, and
    α = C is Dir(1, …, 1).
    """

    alpha: Concentration = 1.0  # over ten classes the 0.1 per class that the other Dirichlet partitions begin with

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Let one client after the other draw its quota."""
        self.require(examples, per_client=1)
        stacks = examples.by_class(rng)
        left = np.array([len(stack) for stack in stacks])
        # Not zero, which numpy refuses: for a class without examples, or if alpha is near the smallest float.
        concentration = np.maximum(self.alpha * left / len(examples), np.finfo(float).tiny)
        hands = []
        for quota in map(len, np.array_split(np.arange(len(examples)), self.clients)):
            taken = _draw(quota, left, concentration, rng)
            parts = zip(stacks, left, taken, strict=True)
            hands.append(np.concatenate([stack[size - take : size] for stack, size, take in parts]))
            left = left - taken
        return Assignment(hands)


def _draw(quota: int, left: Indices, concentration: NDArray[np.float64], rng: np.random.Generator) -> Indices:
    """How many examples of each class one client takes.

    Drawing again for those that found their class used up is the same as removing it at that moment.
    """
    shares = rng.dirichlet(concentration)
    taken = np.zeros_like(left)
    while short := quota - taken.sum():
        has_room = taken < left
        shares = shares * has_room
        if not shares.sum() > 0:  # the others were rounded to zero; renormalised, they would be a Dirichlet again
            shares[has_room] = rng.dirichlet(concentration[has_room])
        taken = np.minimum(taken + rng.multinomial(short, shares / shares.sum()), left)
    return taken
