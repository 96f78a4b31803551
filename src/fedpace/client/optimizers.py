"""Local optimizers: those of ``torch.optim``, by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from fedpace.core import ConfigError, did_you_mean

_NAMES = {name.lower(): name for name, found in vars(torch.optim).items() if inspect.isclass(found)}
_UNUSABLE = {
    "optimizer": "it is the base of all others",
    "lbfgs": "it asks for the loss several times a step",
    "sparseadam": "it is for sparse gradients",
    "adafactor": "it looks at the shapes of tensors, and here all lie in one vector",
    "muon": "it looks at the shapes of tensors, and here all lie in one vector",
    "rprop": "it is for whole data sets, not for batches",
}


def optimizer_names() -> list[str]:
    """What ``local.optimizer`` may be."""
    return sorted(_NAMES.keys() - _UNUSABLE.keys())


def check_optimizer(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a name or a parameter that torch does not know, in one line."""
    if name in _UNUSABLE:
        raise ConfigError(f"optimizer '{name}' cannot be used: {_UNUSABLE[name]}")
    if name not in _NAMES:
        raise ConfigError(f"unknown optimizer '{name}'; {did_you_mean(name, optimizer_names())}")
    taken = _taken(name)
    for key in settings:
        if key not in taken:
            raise ConfigError(f"optimizer '{name}': unknown parameter '{key}'; {did_you_mean(key, taken)}")
    try:
        make_optimizer(name, [nn.Parameter(torch.zeros(1))], settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer '{name}': {error}") from None


def make_optimizer(name: str, parameters: Sequence[nn.Parameter], settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer with these settings, as one fused step where torch has one."""
    fused = {"fused": True} if "fused" in _taken(name) else {}
    found: torch.optim.Optimizer = getattr(torch.optim, _NAMES[name])(parameters, **{**settings, **fused})
    return found


def takes(name: str, key: str) -> bool:
    """Whether an optimizer has such a parameter.

    >>> takes("adam", "momentum"), takes("sgd", "momentum")
    (False, True)
    """
    return name in _NAMES and key in _taken(name)


@cache
def _taken(name: str) -> list[str]:
    return [key for key in inspect.signature(getattr(torch.optim, _NAMES[name])).parameters if key != "params"]
