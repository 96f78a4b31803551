"""Data sets of Hugging Face's ``datasets``, which need not be installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpace.core import DataError, did_you_mean
from fedpace.data._arrays import Pair, from_arrays
from fedpace.data._items import columns_of_numbers, stacked
from fedpace.data.data import Data
from fedpace.data.examples import Array

_TARGETS = ("label", "labels", "target")
TESTS = ("test", "validation")


def is_hugging_face(source: Any) -> bool:
    """Whether it is a data set, or a dictionary of them, of that library."""
    return any(kind.__module__.partition(".")[0] == "datasets" for kind in type(source).__mro__)


def from_hugging_face(
    source: Any, *, inputs: str | Sequence[str] | None = None, target: str | None = None, test: Any = None
) -> Data:
    """Data of a data set, and perhaps of another one for testing; or of the splits of a dictionary of data sets.

    ``inputs`` names the column of inputs, or several: numbers become one table, others stay several inputs by name. By
    default it is the only column of images, or all columns of numbers. The ``target`` is "label", "labels" or "target".
    """
    train = source
    if isinstance(source, Mapping):
        if "train" not in source:
            raise DataError(f"data sets: expected a split 'train', found {sorted(source)}; choose one of them")
        train = source["train"]
        if test is None:
            test = next((source[split] for split in TESTS if split in source), None)
    _check_columns(train)
    target = _target(train, target)
    chosen = _inputs(train, inputs, target)
    return from_arrays(
        _read(train, chosen, target),
        None if test is None else _read(test, chosen, target),
        name=getattr(train.info, "dataset_name", None) or "hugging_face",
        classes=tuple(getattr(train.features[target], "names", None) or ()),
    )


def _check_columns(dataset: Any) -> None:
    if not (hasattr(dataset, "__len__") and getattr(dataset, "features", None)):
        raise DataError(
            f"{type(dataset).__name__}: expected a data set with a length and columns, found one that can only be "
            "iterated over; load it without streaming"
        )


def _target(dataset: Any, name: str | None) -> str:
    found = [column for column in ([name] if name else _TARGETS) if column in dataset.features]
    if not found:
        raise DataError(
            f"expected a column '{name or _TARGETS[0]}' as target; {did_you_mean(name or '', dataset.features)}; "
            "name it with target="
        )
    return found[0]


def _inputs(dataset: Any, names: str | Sequence[str] | None, target: str) -> list[str]:
    kinds = {column: type(feature).__name__ for column, feature in dataset.features.items() if column != target}
    if names is not None:
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in kinds:
                raise DataError(f"inputs: unknown column '{name}'; {did_you_mean(name, kinds)}")
        return names
    images = [column for column, kind in kinds.items() if kind == "Image"]
    numbers = [column for column, kind in kinds.items() if kind != "ClassLabel" and _numeric(dataset.features[column])]
    if len(images) > 1 or not (images or numbers):
        found = ", ".join(f"{column} ({kind})" for column, kind in kinds.items()) or "none"
        raise DataError(
            f"expected one column of images, or columns of numbers, found {found}; choose with inputs=, and turn text "
            "into numbers first"
        )
    return images or numbers


def _numeric(feature: Any) -> bool:
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float"))


def _read(dataset: Any, inputs: Sequence[str], target: str) -> Pair:
    _check_columns(dataset)
    columns = {name: _column(dataset, name) for name in inputs}
    arrays = list(columns.values())
    targets = _column(dataset, target)
    if len(arrays) == 1:
        return columns_of_numbers(arrays[0]), targets
    if all(array.ndim == 1 for array in arrays):
        return np.stack(arrays, axis=1), targets
    return {name: columns_of_numbers(array) for name, array in columns.items()}, targets


def _column(dataset: Any, name: str) -> Array:
    if name not in dataset.features:
        raise DataError(f"expected a column '{name}' in all splits; {did_you_mean(name, dataset.features)}")
    column = dataset.select_columns([name])
    if type(dataset.features[name]).__name__ == "Image":
        return stacked(f"column '{name}'", (row[name] for row in column.with_format(None)))
    values: Array = column.with_format("numpy")[:][name]  # at once: row by row would take minutes
    if values.dtype == object:
        raise DataError(f"column '{name}': expected numbers of one shape, found {dataset.features[name]}")
    return values
