"""Local steps on flat vectors: Adam's and SGD's by torch's fused kernels, with no optimizer around them.

A ``torch.optim`` optimizer for each client's turn would cost a small model more than its steps, and the first one of a
process imports a compiler for a second. Nearly every run takes one of these two, with the same result to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Steps(Protocol):
    """What local training asks of an optimizer."""

    def step(self) -> Any:
        """Move the model by the gradient that it holds."""


class Moved(Protocol):
    """What an optimizer moves: the vector of a model, or those of several in rows."""

    @property
    def vector(self) -> Tensor:
        """Where it is."""

    @property
    def gradient(self) -> Tensor:
        """Where it goes."""

    def spare(self, use: str) -> Tensor:
        """As much memory as the vector's, for one use."""


class SGDSteps:
    """``torch.optim.SGD(fused=True)`` on some parts of a model's vector."""

    def __init__(
        self, model: Moved, parts: Sequence[slice], *, lr: float, weight_decay: float, momentum: float
    ) -> None:
        self._vectors = [model.vector[part] for part in parts]
        self._gradients = [model.gradient[part] for part in parts]
        self._momenta = [model.spare("momentum")[part] for part in parts] if momentum else []
        self._settings: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        self._first = True

    def step(self) -> None:
        """The first one sets the momentum, whatever was there."""
        torch._fused_sgd_(
            self._vectors,
            self._gradients,
            self._momenta,
            **self._settings,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=self._first and bool(self._momenta),
        )
        self._first = False


class AdamSteps:
    """``torch.optim.Adam(fused=True)`` on some parts of a model's vector."""

    def __init__(self, model: Moved, parts: Sequence[slice], *, lr: float, weight_decay: float) -> None:
        self._vectors = [model.vector[part] for part in parts]
        self._gradients = [model.gradient[part] for part in parts]
        self._means = [model.spare("Adam's means")[part].zero_() for part in parts]
        self._squares = [model.spare("Adam's squares")[part].zero_() for part in parts]
        self._done = torch.zeros((), device=model.vector.device)
        self._settings: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}

    def step(self) -> None:
        """β₁, β₂ and ε are torch's."""
        self._done += 1
        torch._fused_adam_(
            self._vectors,
            self._gradients,
            self._means,
            self._squares,
            [],
            [self._done] * len(self._vectors),
            **self._settings,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
