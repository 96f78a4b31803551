"""The cosines of pairs of clients, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from fedpace.core import RoundRecord


@dataclass(frozen=True)
class Snapshot:
    """The cosines of one round; row and column ``i`` belong to ``clients[i]``."""

    round: int
    clients: list[int]
    cosines: NDArray[np.float64]


def snapshots(records: Sequence[RoundRecord]) -> list[Snapshot]:
    """The rounds that kept a matrix. A dropped client has no row, and of a large cohort only the first ones have."""
    shots = []
    for record in records:
        matrix = None if record.similarity is None else record.similarity.matrix
        if not matrix or len(matrix) < 2:
            continue
        dropped = {drop.client for drop in record.dropped}
        clients = [client for client in record.cohort if client not in dropped]
        if len(clients) < len(matrix):
            continue  # dropped from one of several exchanges: whose rows these are is not known
        cosines = np.array([[nan if value is None else value for value in row] for row in matrix], dtype=float)
        np.fill_diagonal(cosines, nan)  # always 1
        shots.append(Snapshot(record.round, clients[: len(matrix)], cosines))
    return shots
