"""The registry of models: a model is a module built from ``(shape, classes)`` and perhaps options."""

from typing import Annotated

from pydantic import Field
from torch import nn

from fedpace.core import ModelError, Registry

models: Registry[nn.Module] = Registry("model", nn.Module)

Size = Annotated[int, Field(ge=1)]
"""An option that counts something: units, layers, heads."""


def check_images(name: str, shape: tuple[int, ...], smallest: int) -> None:
    """Fail unless ``shape`` is (channels, height, width) of at least ``smallest`` pixels a side."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ModelError(
            f"model '{name}': expected images (channels, height, width) of at least {smallest} × {smallest} pixels, "
            f"found shape {shape}; load the data with a larger size, or use 'mlp' or 'linear'"
        )


def check_text(name: str, shape: tuple[int, ...]) -> None:
    """Fail unless ``shape`` is that of a text: (tokens,)."""
    if len(shape) != 1:
        raise ModelError(
            f"model '{name}': expected texts of shape (tokens,), found shape {shape}; "
            "for images use 'small_cnn', for tables 'mlp'"
        )
