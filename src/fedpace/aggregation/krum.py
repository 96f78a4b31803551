"""Krum."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._distances import DistanceRule, noise, smallest, squared_distances
from fedpace.aggregation._rule import Diagnostics, rules
from fedpace.core import ConfigError


@rules.register("krum")
class Krum(DistanceRule):
    """The update that is nearest to its neighbours (Blanchard et al., 2017).

    Among N clients with f ``attackers`` the score of a client is Σ ‖uᵢ − uⱼ‖² over its N − f − 2 nearest others; the
    update with the smallest score is the result. Clients whose scores are equal share it. Without a number, f is as
    many as Krum bears, N ≥ 2f + 3. Samples do not count. One client's update is as noisy as that client's data are
    one-sided: where honest clients differ much, prefer :class:`MultiKrum`.
    Memory: N vectors. Time: N²d.

    >>> Krum(attackers=1)(torch.tensor([[1.0], [1.2], [1.3], [1.7], [900.0]]))
    tensor([1.2000])
    """

    attackers: int | None = Field(None, ge=0)

    def bears(self, clients: int) -> int:
        """As many as there are said to be, if there are enough others."""
        most = max((clients - 3) // 2, 0)
        return most if self.attackers is None else min(self.attackers, most)

    def check(self, clients: int) -> None:
        """Refuse more attackers than Krum bears."""
        least = 2 * (self.attackers or 0) + 3
        if self.attackers is not None and clients < least:
            raise ConfigError(
                f"rule '{self.registered_name()}', attackers = {self.attackers}: "
                f"expected at least {least} clients in a round, found {clients}"
            )

    def kept(self, clients: int) -> int:
        """How many updates are averaged."""
        return 1

    def coefficients(self, gram_matrix: Tensor, weights: Tensor) -> tuple[Tensor, Diagnostics]:
        """Equal ones for those with the smallest scores."""
        clients = len(gram_matrix)
        neighbours = min(max(clients - self.bears(clients) - 2, 1), clients - 1)
        distances = squared_distances(gram_matrix).fill_diagonal_(torch.inf)  # nobody is a neighbour of itself
        order = distances.argsort(dim=1)[:, :neighbours]
        scores = distances.gather(1, order).sum(dim=1)
        blurred = noise(gram_matrix).gather(1, order).sum(dim=1)
        kept = self.kept(clients)
        return smallest(scores, kept, blurred) / kept, {"scores": scores.tolist()}
