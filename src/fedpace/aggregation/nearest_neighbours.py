"""Nearest-neighbour mixing."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._distances import noise, smallest, squared_distances
from fedpace.aggregation._gram import WHOLE, Rows
from fedpace.aggregation._mixing import Mixing
from fedpace.aggregation._rule import minority, rules
from fedpace.core import ConfigError


@rules.register("nearest_neighbours")
class NearestNeighbours(Mixing):
    """The ``rule`` of what each client's nearest neighbours send on average (NNM, Allouah et al. 2023).

    Among N clients with f ``attackers`` each update is replaced by the mean of the N − f updates that are nearest to
    it, its own among them; those that are equally near share the last places. Honest updates become alike, which is
    what rules need that take what differs for an attack. Without a number, f is just below half. Samples do not count.
    Memory: N vectors, and what the rule needs. Time: N²d, and the rule's.

    >>> NearestNeighbours(attackers=1, rule="median")(torch.tensor([[1.0], [2.0], [3.0], [900.0]]))
    tensor([2.])
    """

    attackers: int | None = Field(None, ge=0)

    def bears(self, clients: int) -> int:
        """As many as there are said to be, if the rule bears them."""
        return min(self._attackers(clients), self.rule.bears(clients))

    def check(self, clients: int) -> None:
        """Refuse half of the clients or more, and what the rule refuses."""
        if self.attackers is not None and 2 * self.attackers >= clients:
            raise ConfigError(
                f"rule 'nearest_neighbours', attackers = {self.attackers}: expected less than half of the "
                f"{clients} clients of a round"
            )
        self.rule.check(clients)

    def mixes(self, rows: Rows, weights: list[float], seed: int) -> tuple[Tensor, list[float]]:
        """The shares of clients in each other's means."""
        gram_matrix = rows.grams(WHOLE, torch.float64)[0]
        near = rows.clients - self._attackers(rows.clients)
        found = smallest(squared_distances(gram_matrix), near, noise(gram_matrix)) / near
        return found, [1.0] * rows.clients

    def _attackers(self, clients: int) -> int:
        most = minority(clients)
        return most if self.attackers is None else min(self.attackers, most)
