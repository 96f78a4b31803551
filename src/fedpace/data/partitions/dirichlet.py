"""Label skew by Dirichlet shares of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpace.data.examples import Examples, Indices
from fedpace.data.hands import Hands
from fedpace.data.partitions._partition import Assignment, ClientsPartition, Concentration, partitions


@partitions.register("dirichlet")
class Dirichlet(ClientsPartition):
    """Each class is shared out by proportions p ~ Dir(α): the label skew of the FedPACE paper.

    A client gets ⌊p nₖ⌋ examples of a class of nₖ, and the largest fractions get what rounding left over. Sizes differ
    widely; a client below ``min_size`` takes random examples from whoever has most.

    Parameters: ``clients``; ``alpha``, small for one or two classes per client, large for equal shares; ``min_size``.
    """

    alpha: Concentration = 0.1
    min_size: int = Field(10, ge=1)

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """Share out class by class, then top up."""
        self.require(examples, self.min_size)
        by_class = examples.by_class(rng)
        shares = (rng.dirichlet(np.full(self.clients, self.alpha)) for _ in by_class)
        counts = [largest_remainders(share, len(own)) for share, own in zip(shares, by_class, strict=True)]
        parts = Hands.dealt(np.concatenate(by_class), np.concatenate(counts))  # those of a class, client after client
        by_client = np.arange(len(parts)).reshape(-1, self.clients).T.ravel()
        hands = parts.chosen(by_client).merged(len(by_class))
        return Assignment(hands if hands.sizes.min() >= self.min_size else top_up(list(hands), self.min_size, rng))


def largest_remainders(proportions: NDArray[np.float64], total: int) -> Indices:
    """Whole numbers near ``proportions`` × ``total`` that sum to ``total``.

    >>> largest_remainders(np.array([0.45, 0.35, 0.2]), 10)
    array([5, 3, 2])
    """
    exact = proportions * total
    counts: Indices = np.floor(exact).astype(np.int64)
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[: total - counts.sum()]] += 1
    return counts


def top_up(hands: list[Indices], min_size: int, rng: np.random.Generator) -> list[Indices]:
    """Move random examples from the largest to the smallest client until everyone has ``min_size``."""
    sizes = np.array([len(hand) for hand in hands])
    while sizes.min() < min_size:
        poor, rich = sizes.argmin(), sizes.argmax()
        given = rng.integers(sizes[rich])
        hands[poor] = np.append(hands[poor], hands[rich][given])
        hands[rich] = np.delete(hands[rich], given)
        sizes[poor] += 1
        sizes[rich] -= 1
    return hands
