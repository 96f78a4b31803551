"""How much a client counts."""

from __future__ import annotations

from typing import Literal

Weights = Literal["uniform", "samples"]
"""Clients count alike, or by their numbers of examples."""


def weight_of(examples: float, weights: Weights) -> float:
    """The weight of a client with so many examples.

    >>> weight_of(30, "samples"), weight_of(30, "uniform")
    (30.0, 1.0)
    """
    return float(examples) if weights == "samples" else 1.0
