"""Label skew by Dirichlet shares of each class."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

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
        return Assignment(top_up(parts.chosen(by_client).merged(len(by_class)), self.min_size, rng))


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


def top_up(hands: Hands, min_size: int, rng: np.random.Generator) -> Sequence[Indices]:
    """Move random examples from the largest to the smallest client until everyone has ``min_size``.

    Nobody who gives has fewer than that afterwards: all together have enough.
    """
    sizes = list(enumerate(hands.sizes.tolist()))
    poor = [(size, client) for client, size in sizes if size < min_size]
    rich = [(-size, client) for client, size in sizes if size > min_size]
    heapify(poor)
    heapify(rich)
    changed: dict[int, Indices] = {}
    while poor:
        (size, taker), (minus, giver) = heappop(poor), heappop(rich)
        own, given = changed.get(giver, hands[giver]), rng.integers(-minus)
        changed[taker] = np.append(changed.get(taker, hands[taker]), own[given])
        changed[giver] = np.delete(own, given)
        if size + 1 < min_size:
            heappush(poor, (size + 1, taker))
        if -minus - 1 > min_size:
            heappush(rich, (minus + 1, giver))
    return [changed.get(client, hand) for client, hand in enumerate(hands)] if changed else hands
