"""Whether a model fits the data: it is tried on a small batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from fedpace.core import FedpaceError, Inputs, ModelError, call, one_line

Shape = tuple[int, ...] | Mapping[str, tuple[int, ...]]
"""The shape of an example; of several inputs, the shape of each by name."""

Check = Callable[[Tensor], str | None]
"""Why a model's outputs do not fit; nothing if they do."""


def check_model(name: str, module: nn.Module, inputs: Inputs, check: Check) -> Tensor:
    """What a model gives in evaluation mode; fail unless it is a tensor with which ``check`` finds nothing wrong.

    >>> check_model("mine", nn.Linear(3, 2), torch.zeros(4, 3), lambda outputs: None).shape
    torch.Size([4, 2])
    """
    training = module.training
    try:
        with torch.no_grad(), _checked_embeddings(module):
            found = call(module.eval(), inputs)
    except Exception as error:  # whatever the user's code raises
        raise ModelError(f"model '{name}' cannot take {_examples(inputs)}: {reason(error)}") from error
    finally:
        module.train(training)
    if not isinstance(found, Tensor):
        raise ModelError(f"model '{name}' gives a {type(found).__name__}; expected a tensor: return the scores alone")
    if wrong := check(found):
        tried = f"{_count(inputs)} {_examples(inputs)}"
        raise ModelError(f"model '{name}' gives {tuple(found.shape)} for {tried}; {wrong}")
    return found


def rows(inputs: Inputs, outputs: int) -> Check:
    """The check of a classifier: a row of scores for each example."""
    wanted = (_count(inputs), outputs)
    return _shaped(wanted, f"expected {wanted}: its output size must match the data's {outputs} classes")


def places(tokens: Tensor, outputs: int) -> Check:
    """The check of a model of text: a score of every token at every place."""
    wanted = (*tokens.shape, outputs)
    return _shaped(wanted, f"expected {wanted}: a score of each of the {outputs} tokens at every place")


def _shaped(wanted: tuple[int, ...], otherwise: str) -> Check:
    return lambda found: None if tuple(found.shape) == wanted else otherwise


@contextmanager
def _checked_embeddings(module: nn.Module) -> Iterator[None]:
    """Within this context an embedding with too few rows says so; torch's IndexError would not say which or why."""
    embeddings = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Embedding)]
    hooks = [part.register_forward_pre_hook(partial(_check_rows, name)) for name, part in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check_rows(name: str, embedding: nn.Embedding, given: tuple[Tensor, ...]) -> None:
    for indices in given:
        needed = int(indices.max()) + 1 if indices.numel() else 0
        if needed > embedding.num_embeddings and not indices.is_floating_point():
            raise ModelError(
                f"its embedding '{name}' has {embedding.num_embeddings} rows, expected {needed} or more: "
                "one for each token of the vocabulary, or for each place of a text"
            )


def _count(inputs: Inputs) -> int:
    """The number of examples in a batch."""
    return len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)


def _examples(inputs: Inputs) -> str:
    """The shape of a batch's examples, for messages."""
    if isinstance(inputs, Mapping):
        return f"examples of {shapes({name: tuple(tensor.shape[1:]) for name, tensor in inputs.items()})}"
    return f"examples of {shapes(tuple(inputs.shape[1:]))}"


def shapes(shape: Shape) -> str:
    """The shape of an example, for messages."""
    if isinstance(shape, Mapping):
        return f"shapes {', '.join(f'{name} {each}' for name, each in shape.items())}"
    return f"shape {shape}"


def reason(error: Exception) -> str:
    """What an error says, with its type where the text alone may be only a key."""
    return str(error) if isinstance(error, FedpaceError) else f"{type(error).__name__}: {one_line(error)}"
