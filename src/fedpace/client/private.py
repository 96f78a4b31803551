"""Local training that is differentially private in examples: clipped gradients of each, and noise."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpace.core import FlatModule, Inputs, Randomness, Settings, seed_of, torch_stream

Loss = Callable[[nn.Module, Inputs, Tensor], Tensor]
"""What a step makes smaller, of a batch."""


class PrivateSteps(Settings):
    """Steps of DP-SGD (Abadi et al., 2016): what a client sends hides its examples, from the server, too.

    Of each example of a batch the gradient gᵢ is clipped to ``norm``; the step's gradient is
    (Σ gᵢ + 𝒩(0, ``noise``² · ``norm``² · I)) / batch. ``delta`` goes with the ε that the round's record has.
    ``randomness`` is ``seeded`` for simulations or ``secret``, as of the server's noise. Cost: the gradients of a batch
    are held one by one.
    """

    norm: float = Field(1.0, gt=0, allow_inf_nan=False)
    noise: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(gt=0, lt=1)
    randomness: Randomness = "seeded"

    def backward(self, loss: Loss, seed: int) -> Callable[[FlatModule, Inputs, Tensor], float]:
        """What adds a batch's gradient to what a model holds; the batch's loss is not told."""
        generator = torch_stream(seed_of(self.randomness, seed), "private steps")

        def add(model: FlatModule, inputs: Inputs, targets: Tensor) -> float:
            gradients = per_example(model.module, loss, inputs, targets)
            squares = torch.stack([each.flatten(1).square().sum(1) for each in gradients.values()])
            scales = (self.norm / squares.sum(0).sqrt().clamp(min=1e-12)).clamp(max=1)
            deviation, holders = self.noise * self.norm, dict(model.layout.tensors(model.gradient))
            for name, each in gradients.items():
                clipped = torch.einsum("n,n...->...", scales, each)
                noise = torch.randn(clipped.shape, generator=generator).to(clipped.device).mul_(deviation)
                holders[name].add_(clipped.add_(noise).div_(len(targets)))
            return nan

        return add


def per_example(module: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor) -> dict[str, Tensor]:
    """The gradients of each example's loss, in rows, by the names of the trainable parameters."""
    whole = _WithLoss(module, loss)
    named = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}

    def of_one(parameters: dict[str, Tensor], own: Inputs, target: Tensor) -> Tensor:
        inside = {f"module.{name}": tensor for name, tensor in parameters.items()}
        found: Tensor = functional_call(whole, inside, (_alone(own), target[None]))
        return found

    detached = {name: tensor.detach() for name, tensor in named.items()}
    rows: dict[str, Tensor] = vmap(grad(of_one), in_dims=(None, 0, 0), randomness="different")(
        detached, inputs, targets
    )
    return rows


class _WithLoss(nn.Module):
    """A module that answers with its loss, so that its parameters can be replaced."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, inputs: Inputs, targets: Tensor) -> Tensor:
        return self._loss(self.module, inputs, targets)


def _alone(own: Inputs) -> Inputs:
    """One example as a batch."""
    return own[None] if isinstance(own, Tensor) else {name: tensor[None] for name, tensor in own.items()}
