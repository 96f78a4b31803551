"""How far the clients of a round agree: pairwise cosines and the agreement of signs, overall and per layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedpace.aggregation import SignSum, cosines, gram, pairs
from fedpace.core import Layout


class Monitor:
    """Listens to the updates of one exchange. Signs are counted here only where the rule does not count them anyway.

    Cosines of pairs need whole rows: those of the first ``pairwise`` clients are kept, and of no more.
    """

    def __init__(self, layout: Layout, clients: int, kind: str, signs: SignSum | None, pairwise: int = 32) -> None:
        self._layout = layout
        self._kind = kind
        self._rows = torch.empty(min(clients, pairwise), layout.size)
        self._kept = 0
        self._counts_signs = signs is None
        self.signs = signs if signs is not None else SignSum(layout.size, clients)

    def add(self, update: Tensor) -> None:
        """Take one update."""
        if self._counts_signs:
            self.signs.add(update)
        if self._kept < len(self._rows):
            self._rows[self._kept] = update
            self._kept += 1

    def similarity(self) -> dict[str, Any] | None:
        """Pairwise cosines of the clients, and of which kind of vector; ``None`` without a pair."""
        if self._kept < 2:
            return None
        matrix = cosines(gram(self._rows[: self._kept]))
        found = pairs(matrix)
        rounded = [[round(value, 4) for value in row] for row in matrix.tolist()]
        return {"kind": self._kind, "mean": float(found.mean()), "min": float(found.min()), "matrix": rounded}

    def agreement(self) -> dict[str, Any] | None:
        """Number of coordinates by |S| = 0 … N, overall and per layer, and the mean agreement."""
        if not self.signs.clients:
            return None
        layers = {name: self.signs.histogram(part) for name, part in self._layout.slices.items()}
        overall = [sum(counts) for counts in zip(*layers.values(), strict=True)]
        return {"mean": self.signs.mean_agreement(), "histogram": overall, "layers": layers}
