"""The network for tables."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from fedpace.core import ModelError
from fedpace.models._model import Size, models

_NORMS = {"none": nn.Identity, "layer": nn.LayerNorm}  # of one example, because statistics of batches mix clients


@models.register("mlp")
class MLP(nn.Module):
    """Hidden layers with ReLU on a vector of numbers, then a linear one; inputs of any shape are flattened.

    There are ``depth`` hidden layers of ``width`` units. ``norm`` may put a LayerNorm before each ReLU.

    >>> sum(p.numel() for p in MLP((10,), 2).parameters())
    4994
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: Size = 64,
        depth: Annotated[int, Field(ge=0)] = 2,
        norm: Literal["none", "layer"] = "none",
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise ModelError(f"norm: expected 'none' or 'layer', found {norm!r}")
        sizes = [prod(shape), *[width] * depth]
        hidden = ((nn.Linear(*pair), _NORMS[norm](width), nn.ReLU()) for pair in pairwise(sizes))
        self.features = nn.Sequential(nn.Flatten(), *(layer for layers in hidden for layer in layers))
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores, or the numbers that a regression predicts."""
        scores: Tensor = self.head(self.features(inputs))
        return scores
