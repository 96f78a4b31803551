"""Gradient masked averaging."""

from __future__ import annotations

from fedpace.aggregation._rule import rules
from fedpace.aggregation._thresholded import Thresholded


@rules.register("masked")
class Masked(Thresholded):
    """The mean where enough clients agree on the sign, dampened elsewhere (Tenison et al., 2023, Algorithm 1).

    A = |Σ sgn(uᵢ)| / N; m = 1 where A ≥ ``tau``, else A; result m ⊙ Δ. Signs are counted without weights, the mean Δ is
    weighted. ``tau`` = 0 is the plain mean, ``tau`` = 1 is :class:`Dampened`. An agreement of 0.4 means that 70 % of
    the clients share the dominant sign. declearn's reading is ``agreement_weights`` = ``samples`` with a ``strict``
    ``threshold``.

    >>> import torch
    >>> Masked(tau=0.5)(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3.0000, -0.3333])
    >>> Masked(tau=0.3)(torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]]))
    tensor([ 3., -1.])
    """
