"""From a name (with options), a module or a factory to a module that fits the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from fedpace.core import FedpaceError, Inputs, ModelError, derive
from fedpace.models._head import HEAD, head_names
from fedpace.models._model import models
from fedpace.models._options import ModelConfig, parse_model
from fedpace.models._trial import Check, Shape, check_model, places, reason, rows, shapes
from fedpace.models.adapter import adapted
from fedpace.models.weights import load_weights, read_weights

Model = str | Mapping[str, Any] | ModelConfig | nn.Module | Callable[..., nn.Module]


def build(
    model: Model, shape: Shape, outputs: int, seed: int, *, inputs: Inputs | None = None, check: Check | None = None
) -> nn.Module:
    """A new module for examples of ``shape``, with weights drawn from ``seed``.

    ``model`` is a registered name, ``package.module:factory``, a table of such a name and options, a class or function
    that takes ``(shape, classes)`` or nothing, or a module, which is copied with its weights. Torch's global generator
    is left as it was.

    The module is tried on ``inputs``, a small batch, and ``check`` judges what it gives. By default the batch is two
    examples of zeros, and each must give ``outputs`` numbers. A module of text says ``takes_tokens = True``: its zeros
    are tokens, and each must give ``outputs`` numbers of its own. Whatever gives these is tried on the largest token,
    too. Several inputs are tried only if they are given, because their shapes do not say which of them are integers.

    >>> build({"name": "small_cnn", "norm": "group"}, (1, 8, 8), outputs=10, seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    chosen = model if isinstance(model, nn.Module) or callable(model) else _described(model)
    with torch.random.fork_rng(devices=[]):  # also for the trial, which draws the weights of lazy layers, and adapters
        torch.manual_seed(derive(seed, "model"))
        name, module = _made(chosen, shape, outputs)
        _try(name, module, shape, outputs, inputs, check)
        if isinstance(chosen, ModelConfig):
            module = _started(module, chosen)
    if hasattr(module, HEAD):
        head_names(module)  # a wrong name shows now and not in the first round
    return module


def _described(model: str | Mapping[str, Any] | ModelConfig) -> ModelConfig:
    parsed = parse_model(model)
    return ModelConfig(name=parsed, options={}) if isinstance(parsed, str) else parsed


def _made(
    model: ModelConfig | nn.Module | Callable[..., nn.Module], shape: Shape, outputs: int
) -> tuple[str, nn.Module]:
    """Name and module, not yet tried."""
    if isinstance(model, nn.Module):
        return type(model).__name__, deepcopy(model)
    if isinstance(model, ModelConfig):
        name, factory, options = model.name, model.factory(), model.options
    else:
        name, factory, options = getattr(model, "__name__", type(model).__name__), model, {}
    if isinstance(shape, Mapping) and name in models.names():
        raise ModelError(
            f"model '{name}' takes one input, found {shapes(shape)}; use a model of your own that takes them by name"
        )
    arguments = _arguments(name, factory, options, shape, outputs)
    try:
        module = factory(*arguments, **options)
    except FedpaceError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ModelError(f"model '{name}' cannot be built for {shapes(shape)}: {reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model '{name}' gives a {type(module).__name__}; expected a torch.nn.Module")
    return name, module


def _try(name: str, module: nn.Module, shape: Shape, outputs: int, inputs: Inputs | None, check: Check | None) -> None:
    """Fail unless the module takes a batch and, if it scores tokens, every token."""
    takes_tokens: bool = getattr(module, "takes_tokens", False)
    if inputs is None:
        if isinstance(shape, Mapping):
            return
        inputs = torch.zeros(2, *shape, dtype=torch.int64 if takes_tokens else torch.float32)
    if isinstance(inputs, Mapping):
        check_model(name, module, inputs, check or rows(inputs, outputs))
        return
    are_tokens = not inputs.is_floating_point()
    if name in models.names() and are_tokens != takes_tokens:
        kinds = ("tokens", "numbers") if takes_tokens else ("numbers", "tokens")
        raise ModelError(f"model '{name}' takes {kinds[0]}, found {kinds[1]}")
    found = check_model(name, module, inputs, check or (places if takes_tokens else rows)(inputs, outputs))
    if are_tokens and inputs.dim() > 1 and found.shape == (*inputs.shape, outputs):
        largest = torch.full_like(inputs, outputs - 1)  # which need not be in a small batch
        check_model(name, module, largest, lambda found: None)


def _started(module: nn.Module, config: ModelConfig) -> nn.Module:
    """The module as the config wants it before the first round: its head, its weights, its adapter."""
    if config.head is not None:
        setattr(module, HEAD, config.head)
    weights = None if config.weights is None else read_weights(config.weights)
    with_adapter = config.adapter is not None and weights is not None and any(".lora_" in name for name in weights)
    if weights is not None and not with_adapter:
        load_weights(module, weights)
    if config.adapter is not None:
        module = adapted(module, config.adapter)
    if weights is not None and with_adapter:  # of a run with this adapter, which goes on
        load_weights(module, weights)
    return module


def _arguments(
    name: str, factory: Callable[..., nn.Module], options: dict[str, Any], shape: Shape, outputs: int
) -> tuple[Any, ...]:
    """Nothing if the factory can be called with the options alone, else shape and outputs."""
    signature = inspect.signature(factory)
    for arguments in ((), (shape, outputs)):
        try:
            signature.bind(*arguments, **options)
        except TypeError:
            continue
        return arguments
    beside = f" beside the options {', '.join(options)}" if options else ""
    raise ModelError(
        f"model '{name}': expected a factory that takes (shape, classes) or nothing{beside}, found {signature}"
    )
