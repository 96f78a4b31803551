"""Multi-Krum."""

from __future__ import annotations

import torch  # noqa: F401  # of the example
from pydantic import Field

from fedpace.aggregation._rule import rules
from fedpace.aggregation.krum import Krum
from fedpace.core import ConfigError


@rules.register("multi_krum")
class MultiKrum(Krum):
    """The mean of the updates that are nearest to their neighbours (Blanchard et al., 2017).

    Those with the smallest scores of :class:`Krum` are averaged alike: ``selected`` of them, or N − ``attackers``.
    Memory: N vectors. Time: N²d.

    >>> MultiKrum(attackers=1)(torch.tensor([[1.0], [1.2], [1.3], [1.7], [900.0]]))
    tensor([1.3000])
    """

    selected: int | None = Field(None, ge=1)

    def check(self, clients: int) -> None:
        """Refuse more attackers than Krum bears, and to select some of them."""
        super().check(clients)
        most = clients - (self.attackers or 0)
        if self.selected is not None and self.selected > most:
            raise ConfigError(
                f"rule '{self.registered_name()}', selected = {self.selected}: "
                f"expected at most {most}, the clients of a round without attackers"
            )

    def kept(self, clients: int) -> int:
        """How many updates are averaged."""
        honest = clients - self.bears(clients)
        return honest if self.selected is None else min(self.selected, honest)
