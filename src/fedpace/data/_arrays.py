"""Arrays that the user already has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from fedpace.core import DataError, devices
from fedpace.data._encode import encode
from fedpace.data.data import Data
from fedpace.data.examples import Array, Arrays, Examples
from fedpace.data.ragged import Ragged
from fedpace.data.tokenizers import Characters

Pair = tuple[Any, Any]


def from_arrays(train: Pair, test: Pair | None = None, *, name: str = "arrays", classes: tuple[str, ...] = ()) -> Data:
    """Data of pairs ``(inputs, targets)``, each a numpy array, a torch tensor or a list.

    Inputs may be several by name, or texts, which become characters. Targets that are floats are numbers to predict,
    rows of integers or booleans are labels, each there or not; all others are classes, whose names may be known.
    """
    pairs = [train] if test is None else [train, test]
    for pair in pairs:
        if len(pair) != 2:
            raise DataError(f"arrays: expected a pair (inputs, labels), found {len(pair)} parts")
    if any(isinstance(targets, Ragged) for _, targets in pairs):
        raise DataError("arrays: expected a class or as many numbers for each example, found rows of different length")
    targets, classes = _targets([_array(targets) for _, targets in pairs], classes)
    inputs, vocabulary = _all_inputs([inputs for inputs, _ in pairs])
    sides = zip(inputs, targets, strict=True)
    return Data(name, *(Examples(x, y, classes, vocabulary=vocabulary) for x, y in sides))


def is_texts(values: Any) -> bool:
    """Whether these are strings, one or more of them."""
    return isinstance(values, list | tuple) and bool(values) and all(isinstance(value, str) for value in values)


def _targets(columns: list[Array], known: tuple[str, ...]) -> tuple[list[Array], tuple[str, ...]]:
    """Floats are numbers, and rows of integers or booleans are labels; neither have classes. All else names classes."""
    if all(np.issubdtype(column.dtype, np.floating) for column in columns):
        return [column.astype(np.float32, copy=False) for column in columns], ()
    if all(column.ndim == 2 and column.dtype.kind in "iub" for column in columns):
        return [column.astype(np.int64, copy=False) for column in columns], ()
    found, classes = encode("labels", columns, known)
    return list(found), classes


def _all_inputs(splits: list[Any]) -> tuple[list[Arrays], tuple[str, ...]]:
    """The inputs of each split, and of texts the vocabulary that they have in common."""
    if not all(map(is_texts, splits)):
        return [_split_inputs(inputs) for inputs in splits], ()
    if "" in (everything := [text for texts in splits for text in texts]):
        raise DataError(f"texts: expected one character or more in each, found none in text {everything.index('')}")
    characters = Characters.of(everything)
    return [Ragged.of([characters.encode(text) for text in texts]) for texts in splits], characters.vocabulary


def _split_inputs(inputs: Any) -> Arrays:
    if isinstance(inputs, Ragged):
        return inputs
    if isinstance(inputs, Mapping):
        return {name: _inputs(_array(values)) for name, values in inputs.items()}
    return _inputs(_array(inputs))


def _array(values: Any) -> Array:
    return np.asarray(devices.to_host(values) if isinstance(values, Tensor) else values)


def _inputs(inputs: Array) -> Array:
    """Floats in single precision, bytes as images with their channels last, other integers as tokens."""
    if np.issubdtype(inputs.dtype, np.floating):
        return inputs.astype(np.float32, copy=False)
    if inputs.dtype != np.uint8 and np.issubdtype(inputs.dtype, np.integer):
        return inputs.astype(np.int64, copy=False)
    if inputs.ndim == 3:
        return inputs[..., None]
    channels_first = inputs.ndim == 4 and inputs.shape[1] in (1, 3) and inputs.shape[3] not in (1, 3)
    return np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if channels_first else inputs
