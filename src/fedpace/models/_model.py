"""The registry of models: a model is a module built from ``(shape, classes)`` and perhaps options."""

from torch import nn

from fedpace.core import ModelError, Registry

models: Registry[nn.Module] = Registry("model", nn.Module)


def check_images(name: str, shape: tuple[int, ...], smallest: int) -> None:
    """Fail unless ``shape`` is (channels, height, width) of at least ``smallest`` pixels a side."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ModelError(
            f"model '{name}': expected images (channels, height, width) of at least {smallest} × {smallest} pixels, "
            f"found shape {shape}; load the data with a larger size, or use 'linear'"
        )
