"""The trimmed mean."""

from __future__ import annotations

import torch  # noqa: F401  # of the example
from pydantic import Field

from fedpace.aggregation._ordered import Ordered
from fedpace.aggregation._rule import rules
from fedpace.aggregation._signs import SLACK


@rules.register("trimmed_mean")
class TrimmedMean(Ordered):
    """In each coordinate the mean without the smallest and the largest values (Yin et al., 2018).

    ``share`` of the clients, rounded down, is left out at each side. Samples do not count.
    Memory: N vectors. Time: O(Nd log²N).

    >>> TrimmedMean(share=0.25)(torch.tensor([[1.0, 5.0], [2.0, 900.0], [-900.0, 6.0], [3.0, 4.0]]))
    tensor([1.5000, 5.5000])
    """

    share: float = Field(0.2, ge=0, lt=0.5)

    def ranked(self, clients: int) -> range:
        """Those in the middle."""
        return range(self.bears(clients), clients - self.bears(clients))

    def bears(self, clients: int) -> int:
        """As many as are left out at one side."""
        return int(self.share * clients + SLACK)
