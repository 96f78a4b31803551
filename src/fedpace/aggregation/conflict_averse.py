"""CAGrad."""

from __future__ import annotations

from fedpace.aggregation._guided import Guided
from fedpace.aggregation._rule import rules
from fedpace.aggregation._simplex import Matrix, Vector


@rules.register("conflict_averse")
class ConflictAverse(Guided):
    """A step near the mean that serves the worst-off client best (CAGrad, Liu et al. 2021).

    :class:`ConflictFree` with the mean as guidance; parameters are those of :class:`Guided`.

    >>> import torch
    >>> ConflictAverse(c=0.5)(torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
    tensor([1.5000, 1.5000])
    """

    def guidance(self, gram: Matrix, shares: Vector) -> Vector:
        """The mean."""
        return shares
