"""How far the clients of a round agree: pairwise cosines and the agreement of signs, overall and per layer."""

from __future__ import annotations

from torch import Tensor

from fedpace.aggregation import Rows, SignSum, Sums, cosines, pairs
from fedpace.core import Agreement, Layout, Similarity


class Monitor:
    """Listens to the updates of one exchange.

    Cosines of pairs need whole rows: those of the first ``pairwise`` clients are kept, and of no more. What the rule
    counts or keeps anyway, its ``signs`` or ``rows``, is neither counted nor kept again.
    """

    def __init__(
        self,
        layout: Layout,
        clients: int,
        kind: str,
        signs: SignSum | None,
        pairwise: int = 32,
        rows: Rows | None = None,
    ) -> None:
        self._layout = layout
        self._kind = kind
        self._pairwise = pairwise
        self._keeps_rows = rows is None
        self.rows = rows if rows is not None else Rows(layout.size, min(clients, pairwise))
        self._counts_signs = signs is None
        self.signs = signs if signs is not None else SignSum(layout.size, clients)

    def add(self, update: Tensor) -> None:
        """Take one update."""
        if self._counts_signs:
            self.signs.add(update)
        if self._keeps_rows and self.rows.clients < self._pairwise:
            self.rows.add(update)

    def absorb(self, sums: Sums) -> None:
        """Take the signs of updates that were summed elsewhere, if any; no pair of these can be compared."""
        if self._counts_signs:
            sums.count(self.signs)

    def similarity(self) -> Similarity | None:
        """Pairwise cosines of the clients, and of which kind of vector; ``None`` without a pair or anything shared."""
        if min(self.rows.clients, self._pairwise) < 2 or not self._layout.size:
            return None
        matrix = cosines(self.rows.gram[: self._pairwise, : self._pairwise])
        found = pairs(matrix)
        rounded = [[round(value, 4) for value in row] for row in matrix.tolist()]
        return Similarity(self._kind, float(found.mean()), float(found.min()), rounded)

    def agreement(self) -> Agreement | None:
        """Number of coordinates by |S| = 0 … N, overall and per layer, and the mean agreement; ``None`` without any."""
        if not self.signs.clients or not self._layout.size:
            return None
        layers = {name: self.signs.histogram(part) for name, part in self._layout.slices.items()}
        overall = [sum(counts) for counts in zip(*layers.values(), strict=True)]
        return Agreement(self.signs.mean_agreement(), overall, layers)
