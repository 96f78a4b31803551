"""What a model is given: one tensor, or several by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

Inputs = Tensor | Mapping[str, Tensor]
"""The inputs of a batch; of several, each is a keyword argument of the model."""


def call(model: Callable[..., Any], inputs: Inputs) -> Any:
    """What ``model`` says about a batch.

    >>> import torch
    >>> call(lambda a, b: a + b, {"a": torch.ones(2), "b": torch.ones(2)})
    tensor([2., 2.])
    """
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def call_with(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Inputs) -> Any:
    """What ``module`` says about a batch, with ``tensors`` in the place of its own of the same names."""
    several = isinstance(inputs, Mapping)
    return functional_call(module, dict(tensors), () if several else (inputs,), dict(inputs) if several else {})


def part(inputs: Inputs, which: slice) -> Inputs:
    """Some examples of a batch."""
    if isinstance(inputs, Mapping):
        return {name: tensor[which] for name, tensor in inputs.items()}
    return inputs[which]
