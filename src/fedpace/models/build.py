"""From a name (with options), a module or a factory to a module that fits the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.core import FedpaceError, Inputs, ModelError, call, derive
from fedpace.models._head import HEAD, head_names
from fedpace.models._model import models
from fedpace.models._options import ModelConfig, parse_model

Model = str | Mapping[str, Any] | ModelConfig | nn.Module | Callable[..., nn.Module]

Shape = tuple[int, ...] | Mapping[str, tuple[int, ...]]
"""The shape of an example; of several inputs, the shape of each by name."""

Check = Callable[[Tensor], str | None]
"""Why a model's outputs do not fit; nothing if they do."""


def build(
    model: Model, shape: Shape, outputs: int, seed: int, *, inputs: Inputs | None = None, check: Check | None = None
) -> nn.Module:
    """A new module for examples of ``shape``, with weights drawn from ``seed``.

    ``model`` is a registered name, ``package.module:factory``, a table of such a name and options, a class or function
    that takes ``(shape, classes)`` or nothing, or a module, which is copied with its weights. Torch's global generator
    is left as it was.

    The module is tried on ``inputs``, a small batch, and ``check`` judges what it gives. By default the batch is two
    examples of zeros, and each must give ``outputs`` numbers. Several inputs are tried only if they are given, because
    their shapes do not say which of them are integers.

    >>> build({"name": "small_cnn", "norm": "group"}, (1, 8, 8), outputs=10, seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if inputs is None and not isinstance(shape, Mapping):
        inputs = torch.zeros(2, *shape)
    with torch.random.fork_rng(devices=[]):  # also for the trial: it draws the weights of lazy layers
        torch.manual_seed(derive(seed, "model"))
        name, module = _made(model, shape, outputs)
        if inputs is not None:
            check_model(name, module, inputs, check or _rows(_count(inputs), outputs))
    if hasattr(module, HEAD):
        head_names(module)  # a wrong name shows now and not in the first round
    return module


def check_model(name: str, module: nn.Module, inputs: Inputs, check: Check) -> None:
    """Fail unless a forward pass in evaluation mode gives a tensor with which ``check`` finds nothing wrong.

    >>> check_model("mine", nn.Linear(3, 2), torch.zeros(4, 3), lambda outputs: None)
    """
    training = module.training
    try:
        with torch.no_grad():
            found = call(module.eval(), inputs)
    except Exception as error:  # whatever the user's code raises
        raise ModelError(f"model '{name}' cannot take {_examples(inputs)}: {_reason(error)}") from error
    finally:
        module.train(training)
    if not isinstance(found, Tensor):
        raise ModelError(f"model '{name}' gives a {type(found).__name__}; expected a tensor: return the scores alone")
    if wrong := check(found):
        tried = f"{_count(inputs)} {_examples(inputs)}"
        raise ModelError(f"model '{name}' gives {tuple(found.shape)} for {tried}; {wrong}")


def _made(model: Model, shape: Shape, outputs: int) -> tuple[str, nn.Module]:
    """Name and module, not yet tried."""
    if isinstance(model, nn.Module):
        return type(model).__name__, deepcopy(model)
    name, factory, options, head = _resolve(model)
    if isinstance(shape, Mapping) and name in models.names():
        raise ModelError(
            f"model '{name}' takes one input, found {_shapes(shape)}; use a model of your own that takes them by name"
        )
    arguments = _arguments(name, factory, options, shape, outputs)
    try:
        module = factory(*arguments, **options)
    except FedpaceError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ModelError(f"model '{name}' cannot be built for {_shapes(shape)}: {_reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model '{name}' gives a {type(module).__name__}; expected a torch.nn.Module")
    if head is not None:
        setattr(module, HEAD, head)
    return name, module


def _resolve(
    model: str | Mapping[str, Any] | ModelConfig | Callable[..., nn.Module],
) -> tuple[str, Callable[..., nn.Module], dict[str, Any], str | None]:
    """Name, factory, options and named head of anything but a module."""
    if callable(model):
        return getattr(model, "__name__", type(model).__name__), model, {}, None
    parsed = parse_model(model)
    config = ModelConfig(name=parsed, options={}) if isinstance(parsed, str) else parsed
    return config.name, config.factory(), config.options, config.head


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


def _rows(count: int, outputs: int) -> Check:
    """The check of a classifier: ``count`` rows of scores."""
    expected = (count, outputs)

    def check(found: Tensor) -> str | None:
        if tuple(found.shape) == expected:
            return None
        return f"expected {expected}: its output size must match the data's {outputs} classes"

    return check


def _count(inputs: Inputs) -> int:
    """The number of examples in a batch."""
    return len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)


def _examples(inputs: Inputs) -> str:
    """The shape of a batch's examples, for messages."""
    if isinstance(inputs, Mapping):
        return f"examples of {_shapes({name: tuple(tensor.shape[1:]) for name, tensor in inputs.items()})}"
    return f"examples of {_shapes(tuple(inputs.shape[1:]))}"


def _shapes(shape: Shape) -> str:
    """The shape of an example, for messages."""
    if isinstance(shape, Mapping):
        return f"shapes {', '.join(f'{name} {each}' for name, each in shape.items())}"
    return f"shape {shape}"


def _reason(error: Exception) -> str:
    """What an error says, with its type where the text alone may be only a key."""
    return str(error) if isinstance(error, FedpaceError) else f"{type(error).__name__}: {error}"
