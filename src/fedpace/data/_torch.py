"""Data sets of PyTorch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from fedpace.core import DataError
from fedpace.data._arrays import Pair, from_arrays
from fedpace.data._items import columns_of_numbers, stacked
from fedpace.data.data import Data


def from_torch(source: Any, *, test: Any = None, target: str = "label") -> Data:
    """Data of a map-style data set, and perhaps of another one for testing: each example is read once.

    An example is ``(input, target)``, where the input may be several by name, or a mapping with the target under
    ``target``. Random transforms of the data set are drawn once, too: use ``data.augment`` instead. Images and uint8
    tensors become uint8 images; floats stay as they are, with their channels where they were (first, for most models).
    """
    classes = getattr(source, "classes", ())
    return from_arrays(
        _read(source, target),
        None if test is None else _read(test, target),
        name=type(source).__name__,
        classes=tuple(map(str, classes)) if isinstance(classes, list | tuple) else (),
    )


def _read(dataset: Any, target: str) -> Pair:
    """All inputs and all targets."""
    what = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"{what}: expected a data set with a length and examples by number, found one that can only be iterated "
            "over; collect its examples and load((inputs, targets))"
        )
    inputs: dict[str, list[Any]] = defaultdict(list)
    targets = []
    for number in range(len(dataset)):
        given, answer = _parts(dataset[number], target, f"{what}: example {number}")
        targets.append(answer)
        for name, value in given.items():
            inputs[name].append(value)
        if any(len(values) != len(targets) for values in inputs.values()):
            raise DataError(f"{what}: example {number}: expected the inputs {sorted(inputs)}, found {sorted(given)}")
    labels = stacked(f"{what}, targets", targets)
    arrays = {
        name: columns_of_numbers(stacked(f"{what}, {name or 'inputs'}", values)) for name, values in inputs.items()
    }
    return (arrays.get("", arrays), labels)


def _parts(example: Any, target: str, where: str) -> tuple[dict[str, Any], Any]:
    """The inputs of an example by name (one input has no name), and its target."""
    if isinstance(example, Mapping):
        if target not in example:
            raise DataError(f"{where}: expected a target under '{target}', found {sorted(map(str, example))}")
        inputs = {name: value for name, value in example.items() if name != target}
        return dict(zip([""], inputs.values(), strict=True)) if len(inputs) == 1 else inputs, example[target]
    if not (isinstance(example, tuple | list) and len(example) == 2):
        length = f" of {len(example)}" if isinstance(example, tuple | list) else ""
        raise DataError(
            f"{where}: expected a pair (input, target) or a mapping, found {type(example).__name__}{length}"
        )
    inputs, answer = example
    return dict(inputs) if isinstance(inputs, Mapping) else {"": inputs}, answer
