"""The classifier of a user's model, and the features that it is given."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fedpace.core import Inputs, ModelError, call_with
from fedpace.models import head_names


def head_layer(module: nn.Module) -> nn.Linear:
    """The head itself; methods that work on its input need it to be linear.

    >>> head_layer(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    Linear(in_features=3, out_features=2, bias=True)
    """
    owner = head_names(module)[0].rpartition(".")[0]
    found = module.get_submodule(owner)
    if not isinstance(found, nn.Linear):
        raise ModelError(
            f"model '{type(module).__name__}': expected a torch.nn.Linear as its head, the last module with a weight "
            f"matrix, found a {type(found).__name__}{f' ({owner})' if owner else ''}"
        )
    return found


def with_features(
    module: nn.Module, inputs: Inputs, tensors: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The module's scores, and the features from which its head made them.

    ``tensors`` stand in for parameters and buffers of the same names.
    """
    caught: list[Tensor] = []
    hook = head_layer(module).register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    try:
        scores: Tensor = call_with(module, tensors or {}, inputs)
    finally:
        hook.remove()
    return scores, caught[-1]
