"""Updates that lose what opposes others, as coefficients over the Gram matrix: no d-sized work."""

from __future__ import annotations

import numpy as np
import torch

from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._simplex import Matrix, Vector
from fedpace.core import torch_stream


def conflicts(gram: Matrix, step: Vector) -> dict[str, int]:
    """How many pairs of clients oppose each other, and how many clients the step still opposes."""
    lengths = np.sqrt(gram.diagonal())
    pairs = gram < -NOISE * np.outer(lengths, lengths)
    clients = gram @ step < -NOISE * lengths * (np.abs(step) @ lengths)
    return {"conflicts_before": int(np.triu(pairs, 1).sum()), "conflicts_after": int(clients.sum())}


def simultaneous(gram: Matrix, shares: Vector) -> Vector:
    """Σ pᵢ(uᵢ − Σⱼ ⟨uᵢ, uⱼ⟩/‖uⱼ‖² uⱼ) over the j that oppose i: it merely counts more often whom others oppose."""
    return shares + shares @ np.maximum(-gram, 0) / _squares(gram)


def sequential(gram: Matrix, shares: Vector, seed: int) -> Vector:
    """PCGrad: each update loses, client after client, what its remainder opposes. The order of each is drawn."""
    return _sequential(gram, shares, seed, _squares(gram))


def sequential_unnormalised(gram: Matrix, shares: Vector, seed: int) -> Vector:
    """The same without the division by ‖uⱼ‖², as in ConFREE's published code: short updates lose next to nothing.

    Where long ones overshoot beyond all numbers, nothing is projected.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = _sequential(gram, shares, seed, np.ones(len(gram)))
        return found if np.isfinite(found @ gram @ found) else shares


def _squares(gram: Matrix) -> Vector:
    """‖uⱼ‖²; a zero update opposes nobody."""
    return np.where(gram.diagonal() > 0, gram.diagonal(), np.inf)


def _sequential(gram: Matrix, shares: Vector, seed: int, divisors: Vector) -> Vector:
    clients = np.arange(len(gram))
    draw = torch_stream(seed, "projection")
    orders = np.array([torch.randperm(len(gram), generator=draw).numpy() for _ in clients])
    mixes, inner = np.eye(len(gram)), gram.copy()  # row i: what is left of uᵢ, and its inner products with all updates
    for others in orders.T:  # all clients at once, each with the next in its own order
        lost = np.where(others == clients, 0, np.maximum(-inner[clients, others], 0) / divisors[others])
        mixes[clients, others] += lost
        inner += lost[:, None] * gram[others]
    return shares @ mixes
