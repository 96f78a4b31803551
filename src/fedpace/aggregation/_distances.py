"""Distances between clients, from their Gram matrix, and who is nearest."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._gram_rule import GramRule


class DistanceRule(GramRule):
    """Coefficients follow from distances. Clients count alike: an attacker may declare as many samples as it likes.

    Products are multiplied in float64, or little would be left of the distance between two updates that are close.
    """

    precision: ClassVar[torch.dtype | None] = torch.float64


def squared_distances(gram_matrix: Tensor) -> Tensor:
    """‖uᵢ − uⱼ‖² of all pairs."""
    squares = gram_matrix.diagonal()
    return (squares[:, None] + squares - 2 * gram_matrix).clamp_min(0).fill_diagonal_(0)


def noise(gram_matrix: Tensor) -> Tensor:
    """Squared distances that differ by less than this count as equal."""
    squares = gram_matrix.diagonal()
    return NOISE * (squares[:, None] + squares)


def distances_from(gram_matrix: Tensor, centre: Tensor) -> Tensor:
    """‖uᵢ − v‖ of all clients, from v = qᵀU with the coefficients ``centre``."""
    products = gram_matrix @ centre
    return (gram_matrix.diagonal() - 2 * products + centre @ products).clamp_min(0).sqrt()


def smallest(values: Tensor, count: int, within: Tensor) -> Tensor:
    """Which ``count`` values of each row are smallest, as shares between 0 and 1 that sum to ``count``.

    Values that are as small as the last of them, ``within`` so much, share the places that are left: the result does
    not depend on an order of clients.

    >>> smallest(torch.tensor([4.0, 2.0, 9.0, 4.0]), 2, torch.zeros(4)).tolist()
    [0.5, 1.0, 0.0, 0.5]
    """
    last = values.sort().values[..., count - 1, None]
    below = values < last - within
    tied = ~below & (values <= last + within)
    below, tied = below.to(values), tied.to(values)
    left = count - below.sum(dim=-1, keepdim=True)
    return below + tied * left / tied.sum(dim=-1, keepdim=True)
