"""What becomes of a client's vector on its way to the server, and what the client keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpace.core import Tensors, Update, derive, devices
from fedpace.server import frozen_by
from fedpace.wire import Wire

if TYPE_CHECKING:
    from fedpace.engine.worker import Turn

RESIDUAL = "residual."
"""How the names of what was lost begin in a client's state: each kind of work has a residual of its own."""


def as_it_arrives(update: Update, turn: Turn, size: int, extras: Mapping[str, Tensor]) -> Update:
    """An update with the vector of ``size`` coordinates that the server will read, on whichever engine.

    What its format loses becomes a part of the client's state. Frozen coordinates do not travel.
    """
    wire, frozen = turn.wire, frozen_by(extras)
    if wire is None or update.vector is None or not travels_encoded(wire, frozen):
        return update
    if update.vector.shape != (size,):
        raise ValueError(f"wrong shape: expected {size} coordinates, found {tuple(update.vector.shape)}")
    name, wanted = RESIDUAL + turn.work.registered_name(), devices.to_host(update.vector)
    if name in turn.state:
        wanted = wanted + devices.to_host(turn.state[name])
    moving = wanted if frozen is None else wanted[devices.to_host(~frozen)]
    encoded = wire.encode(moving, derive(turn.seed, "wire"))
    arrived = opened(wire, encoded, size, frozen)
    here = update.vector.device
    update = replace(update, vector=arrived.to(here), encoded=encoded)
    if not wire.keeps_residual:
        return update
    left = wanted - arrived
    return keeping(update, turn.state, {name: torch.where(left.isfinite(), left, 0.0).to(here)})


def travels_encoded(wire: Wire | None, frozen: Tensor | None) -> bool:
    """Whether a vector travels as bytes of a format. A whole one that loses nothing travels as it is."""
    return wire is not None and not (wire.lossless and frozen is None)


def opened(wire: Wire, encoded: Tensor, size: int, frozen: Tensor | None) -> Tensor:
    """The vector of ``size`` coordinates of which the bytes are those that are not frozen."""
    if frozen is None:
        return wire.read(encoded, size)
    moving = devices.to_host(~frozen)
    vector = torch.zeros(size, device=devices.HOST)
    vector[moving] = wire.read(encoded, int(moving.sum()))
    return vector


def keeping(update: Update, state: Mapping[str, Tensor], kept: Tensors) -> Update:
    """An update whose client keeps this as well as what it has kept already."""
    return replace(update, state={**state, **(update.state or {}), **kept})


def without_residuals(state: Tensors) -> Tensors:
    """Of what a client keeps, all that is needed for work of which nothing is sent in bytes."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(RESIDUAL)}
