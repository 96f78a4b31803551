"""The convex model."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from fedpace.models._model import models


@models.register("linear")
class Linear(nn.Module):
    """One linear layer on the flattened input, of any shape: multinomial logistic regression (GMA's convex experiment).

    >>> Linear((1, 28, 28), 10).head
    Linear(in_features=784, out_features=10, bias=True)
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(prod(shape), classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(inputs.flatten(start_dim=1))
        return scores
