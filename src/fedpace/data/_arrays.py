"""Arrays that the user already has."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from fedpace.core import DataError
from fedpace.data._encode import encode
from fedpace.data.data import Data
from fedpace.data.dataset import Array, Dataset

Pair = tuple[Any, Any]


def from_arrays(train: Pair, test: Pair | None = None) -> Data:
    """Data of pairs ``(inputs, labels)``, each a numpy array, a torch tensor or a list."""
    pairs = [train] if test is None else [train, test]
    for pair in pairs:
        if len(pair) != 2:
            raise DataError(f"arrays: expected a pair (inputs, labels), found {len(pair)} parts")
    labels, classes = encode("labels", [_array(labels) for _, labels in pairs])
    inputs = [_inputs(_array(inputs)) for inputs, _ in pairs]
    return Data("arrays", *(Dataset(x, y, classes) for x, y in zip(inputs, labels, strict=True)))


def _array(values: Any) -> Array:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def _inputs(inputs: Array) -> Array:
    """Floats in single precision, bytes as images with their channels last."""
    if np.issubdtype(inputs.dtype, np.floating):
        return inputs.astype(np.float32, copy=False)
    if inputs.ndim == 3:
        return inputs[..., None]
    channels_first = inputs.ndim == 4 and inputs.shape[1] in (1, 3) and inputs.shape[3] not in (1, 3)
    return np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if channels_first else inputs
