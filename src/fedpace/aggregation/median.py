"""The coordinate-wise median."""

from __future__ import annotations

import torch  # noqa: F401  # of the example

from fedpace.aggregation._ordered import Ordered
from fedpace.aggregation._rule import minority, rules


@rules.register("median")
class Median(Ordered):
    """The median of the clients in each coordinate (Yin et al., 2018); of an even number, the mean of the middle two.

    Samples do not count. Memory: N vectors. Time: O(Nd log²N).

    >>> Median()(torch.tensor([[1.0, 5.0], [2.0, 900.0], [-900.0, 6.0]]))
    tensor([1., 6.])
    """

    def ranked(self, clients: int) -> range:
        """The one or two in the middle."""
        return range((clients - 1) // 2, clients // 2 + 1)

    def bears(self, clients: int) -> int:
        """Less than half."""
        return minority(clients)
