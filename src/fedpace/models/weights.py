"""Weights to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedpace.core import ModelError, did_you_mean

_FILE = "model.safetensors"


def read_weights(place: str | Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file, or in the run folder that holds one."""
    path = Path(place)
    try:
        return load_file(path / _FILE if path.is_dir() else path)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"weights '{place}': expected a safetensors file or the folder of a finished run with {_FILE} ({error})"
        ) from None


def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a module the weights that it starts from: each of its parameters and buffers, and nothing else.

    >>> import torch
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> load_weights(layer, {"weight": torch.tensor([[1.0, 2.0]])})
    >>> layer(torch.ones(1, 2)).item()
    3.0
    """
    expected: dict[str, Tensor] = module.state_dict()
    unknown = sorted(weights.keys() - expected.keys())
    for name, tensor in expected.items():
        if name not in weights:
            near = f"; {did_you_mean(name, unknown)}" if unknown else ""
            raise ModelError(f"weights: expected '{name}' of {type(module).__name__}, found none{near}")
        if weights[name].shape != tensor.shape:
            shapes = f"expected shape {tuple(tensor.shape)}, found {tuple(weights[name].shape)}"
            raise ModelError(f"weights: '{name}' of {type(module).__name__}: {shapes}")
    if unknown:
        raise ModelError(f"weights: found '{unknown[0]}', which {type(module).__name__} does not have")
    module.load_state_dict(weights)
