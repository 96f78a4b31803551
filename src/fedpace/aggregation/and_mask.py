"""The AND-mask."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpace.aggregation._rule import ScaledStream, Stream, rules
from fedpace.aggregation._scaled import SignScaledStream
from fedpace.aggregation._thresholded import Thresholded


@rules.register("and_mask")
class AndMask(Thresholded):
    """The mean where enough clients agree on the sign, nothing elsewhere (Parascandolo et al., 2020; GMA, Figure 5).

    A = |Σ sgn(uᵢ)| / N; m = 1 where A ≥ ``tau``, else 0; result m ⊙ Δ. ``rescale`` = ``surviving_share`` divides m by
    10⁻¹⁰ plus the share of coordinates that survive, so that a sparse step is no shorter. Parascandolo et al. take that
    share per tensor; an aggregation rule knows no tensors, so here it is that of the whole vector.

    >>> AndMask(tau=0.5)(torch.tensor([[3.0, 1.0], [3.0, 5.0], [3.0, -1.0]]))
    tensor([3., 0.])
    >>> AndMask(tau=0.5, rescale="surviving_share")(torch.tensor([[3.0, 1.0], [3.0, 5.0], [3.0, -1.0]]))
    tensor([6., 0.])
    """

    slope: ClassVar[float] = 0.0
    rescale: Literal["none", "surviving_share"] = "none"

    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream."""
        stream = SignScaledStream if self.rescale == "none" else _RescaledStream
        return stream(self, size, clients, dtype, self.agreement_weights)


class _RescaledStream(SignScaledStream):
    finish = ScaledStream.finish  # the share is known only when all factors are

    def split(self) -> tuple[Tensor, Tensor]:
        mean, mask = super().split()
        surviving = self.diagnostics["mean_factor"]
        self.diagnostics["mean_factor"] = surviving / (1e-10 + surviving)
        return mean, mask.div_(1e-10 + surviving)
