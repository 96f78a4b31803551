"""Which part of a model is its head: what personalised methods keep, replace or train apart from the rest."""

from __future__ import annotations

from torch import nn

from fedpace.core import ModelError, did_you_mean

HEAD = "fedpace_head"
"""The attribute of a module that names its head, where it is not the part that would be found."""


def head_names(module: nn.Module, head: str | None = None) -> tuple[str, ...]:
    """Names of the head's parameters, as ``named_parameters`` has them.

    The head is the part named ``head``, else the one that the module's attribute ``fedpace_head`` names, else the last
    one that holds a weight matrix. A tensor that the head shares with another part has the name under which it comes
    first: an output layer tied to an embedding is named as the embedding, and whoever keeps the one keeps the other.

    >>> head_names(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ('2.weight', '2.bias')
    """
    part = head_part(module, head)
    is_named = part == _named(module, head)
    # What was found is one layer; what was named is all that lies below the name.
    owned = {id(parameter) for parameter in module.get_submodule(part).parameters(recurse=is_named)}
    return tuple(name for name, parameter in module.named_parameters() if id(parameter) in owned)


def head_part(module: nn.Module, head: str | None = None) -> str:
    """Name of the head itself; see :func:`head_names`.

    >>> head_part(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    '2'
    """
    named = _named(module, head)
    if named is None:
        return _last_matrix(module)
    known = [name for name, part in module.named_modules() if name and any(True for _ in part.parameters())]
    if named not in known:
        raise ModelError(
            f"model '{type(module).__name__}': expected a part with parameters as its head, found none named "
            f"'{named}'; {did_you_mean(named, known)}"
        )
    return named


def _named(module: nn.Module, head: str | None) -> str | None:
    found: str | None = head if head is not None else getattr(module, HEAD, None)
    return found


def _last_matrix(module: nn.Module) -> str:
    """The last part that holds a weight matrix itself; normalisation has none."""
    named = module.named_parameters(
        remove_duplicate=False
    )  # an output layer counts though its weight is the embedding's
    owners = [name.rpartition(".")[0] for name, parameter in named if parameter.dim() >= 2]
    if not owners:
        raise ModelError(
            f"model '{type(module).__name__}': expected a layer with a weight matrix as its head, found none"
        )
    return owners[-1]
