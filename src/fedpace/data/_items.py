"""Examples one by one, as other libraries have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from fedpace.core import DataError, devices
from fedpace.data.examples import Array
from fedpace.data.sources._images import pixels


def stacked(what: str, values: Iterable[Any]) -> Array:
    """One array of tensors, arrays, images, numbers or names, one per example, which must have one shape."""
    arrays: list[Array] = []
    for number, value in enumerate(values):
        array = _array(value)
        if array is None:
            raise DataError(
                f"{what}: expected tensors, arrays, images or numbers, found {type(value).__name__} in example {number}"
            )
        if arrays and array.shape != arrays[0].shape:
            raise DataError(
                f"{what}: expected examples of one shape, {arrays[0].shape} as the first, found {array.shape} in "
                f"example {number}; resize, crop or pad them"
            )
        arrays.append(array)
    if not arrays:
        raise DataError(f"{what}: expected at least one example, found none")
    return np.stack(arrays)


def columns_of_numbers(array: Array) -> Array:
    """Inputs of one number per example become a table with one column."""
    return array[:, None] if array.ndim == 1 else array


def _array(value: Any) -> Array | None:
    if isinstance(value, Image.Image):
        return pixels(value, None)
    try:
        array = np.asarray(devices.to_host(value) if isinstance(value, Tensor) else value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype != object else None
