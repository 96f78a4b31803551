"""From a name (with options), a module or a factory to a module that fits the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from fedpace.core import ModelError, derive
from fedpace.models._options import ModelConfig, parse_model

Model = str | Mapping[str, Any] | ModelConfig | nn.Module | Callable[..., nn.Module]


def build(model: Model, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """A new module for examples of ``shape``, with weights drawn from ``seed``.

    ``model`` is a registered name, ``package.module:factory``, a table of such a name and options, a class or function
    that takes ``(shape, classes)`` or nothing, or a module, which is copied with its weights. Torch's global generator
    is left as it was.

    >>> build({"name": "small_cnn", "norm": "group"}, (1, 8, 8), classes=10, seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if isinstance(model, nn.Module):
        name, module = type(model).__name__, deepcopy(model)
    else:
        name, factory, options = _resolve(model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "model"))
            module = factory(*_arguments(name, factory, options, shape, classes), **options)
        if not isinstance(module, nn.Module):
            raise ModelError(f"model '{name}' gives a {type(module).__name__}; expected a torch.nn.Module")
    _check_output(name, module, shape, classes)
    return module


def _resolve(
    model: str | Mapping[str, Any] | ModelConfig | Callable[..., nn.Module],
) -> tuple[str, Callable[..., nn.Module], dict[str, Any]]:
    """Name, factory and options of anything but a module."""
    if callable(model):
        return getattr(model, "__name__", type(model).__name__), model, {}
    parsed = parse_model(model)
    config = ModelConfig(name=parsed, options={}) if isinstance(parsed, str) else parsed
    return config.name, config.factory(), config.options


def _arguments(
    name: str, factory: Callable[..., nn.Module], options: dict[str, Any], shape: tuple[int, ...], classes: int
) -> tuple[Any, ...]:
    """Nothing if the factory can be called with the options alone, else shape and classes."""
    signature = inspect.signature(factory)
    for arguments in ((), (shape, classes)):
        try:
            signature.bind(*arguments, **options)
        except TypeError:
            continue
        return arguments
    beside = f" beside the options {', '.join(options)}" if options else ""
    raise ModelError(
        f"model '{name}': expected a factory that takes (shape, classes) or nothing{beside}, found {signature}"
    )


def _check_output(name: str, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """A forward pass of two examples must give two rows of ``classes`` scores."""
    training = module.training
    try:
        with torch.no_grad():
            found = tuple(module.eval()(torch.zeros(2, *shape)).shape)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"model '{name}' cannot take examples of shape {shape}: {reason}") from None
    finally:
        module.train(training)
    if found != (2, classes):
        raise ModelError(
            f"model '{name}' gives {found} for 2 examples of shape {shape}; expected {(2, classes)}: "
            f"its output size must match the data's {classes} classes"
        )


def head_names(module: nn.Module) -> tuple[str, ...]:
    """Names of the classifier head's parameters: those of the last module that holds a weight matrix.

    >>> head_names(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ('2.weight', '2.bias')
    """
    owners = {name: name.rpartition(".")[0] for name, _ in module.named_parameters()}
    matrices = [name for name, parameter in module.named_parameters() if parameter.dim() >= 2]  # normalisation has none
    if not matrices:
        raise ModelError(
            f"model '{type(module).__name__}': expected a layer with a weight matrix as its head, found none"
        )
    return tuple(name for name in owners if owners[name] == owners[matrices[-1]])
