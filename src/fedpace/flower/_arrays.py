"""How a Flower app's arrays lie in our flat vector and buffers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from fedpace.core import Buffers, ConfigError, Layout

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # BatchNorm's


def values(array: Array) -> NDArray[Any]:
    """What ``array.numpy()`` returns, but read-only, where it lies: nothing is copied, and no header parsed twice.

    Somebody else wrote the bytes. They have to be what numpy writes of real numbers, whole and with nothing after it.
    """
    data = array.data
    if array.stype != "numpy.ndarray" or data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("expected an array in numpy's format 1.0")
    end = 10 + int.from_bytes(data[8:10], "little")
    shape, order, dtype = _header(data[:end])
    if dtype.kind not in "fiub" or min(shape, default=0) < 0:
        raise ValueError(f"expected an array of real numbers, found {dtype} of shape {shape}")
    if len(data) != end + prod(shape) * dtype.itemsize:
        raise ValueError(f"expected {prod(shape)} numbers of type {dtype}, found {len(data) - end} bytes")
    return np.frombuffer(data, dtype, count=prod(shape), offset=end).reshape(shape, order=order)


@lru_cache(maxsize=4096)
def _header(header: bytes) -> tuple[tuple[int, ...], Any, np.dtype[Any]]:
    """Shape, order and dtype that the beginning of an .npy file tells."""
    file = BytesIO(header)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, "F" if fortran else "C", dtype


def is_buffer(name: str) -> bool:
    """Whether an array is a buffer by its name: one of BatchNorm's statistics.

    >>> is_buffer("features.1.running_mean"), is_buffer("features.1.weight")
    (True, False)
    """
    return name.endswith(_STATISTICS)


@dataclass(frozen=True)
class Arrays:
    """Names, shapes and dtypes of an app's arrays in their order, and which of them are buffers.

    Parameters become one float32 vector; buffers are floats and integers, kept apart as :class:`Buffers` does.
    """

    specs: tuple[tuple[str, tuple[int, ...], str], ...]
    buffers: frozenset[str]

    @classmethod
    def of(cls, record: ArrayRecord, is_buffer: Callable[[str], bool] = is_buffer) -> Arrays:
        """Those of a record. What is not floating point is a buffer in any case."""
        found = tuple((name, tuple(array.shape), array.dtype) for name, array in record.items())
        for name, _, dtype in found:
            if np.dtype(dtype).kind not in "fiub":
                raise ConfigError(f"array '{name}': expected real numbers, found {dtype}")
        buffers = frozenset(name for name, _, dtype in found if is_buffer(name) or np.dtype(dtype).kind != "f")
        arrays = cls(found, buffers)
        if not arrays.parameters.size:
            raise ConfigError(f"arrays: expected parameters to train, found {', '.join(sorted(buffers)) or 'nothing'}")
        return arrays

    @classmethod
    def from_json(cls, text: str) -> Arrays:
        """What :meth:`to_json` wrote."""
        specs, buffers = json.loads(text)
        return cls(tuple((name, tuple(shape), dtype) for name, shape, dtype in specs), frozenset(buffers))

    def to_json(self) -> str:
        """As text, for a file."""
        return json.dumps([self.specs, sorted(self.buffers)])

    @cached_property
    def parameters(self) -> Layout:
        """Where the parameters lie in the vector."""
        return self._layout(lambda name, _: name not in self.buffers)

    @cached_property
    def floats(self) -> Layout:
        """Where the buffers of floating point lie."""
        return self._layout(lambda name, kind: name in self.buffers and kind == "f")

    @cached_property
    def integers(self) -> Layout:
        """Where all other buffers lie."""
        return self._layout(lambda name, kind: name in self.buffers and kind != "f")

    def _layout(self, included: Callable[[str, str], bool]) -> Layout:
        chosen = [(name, shape) for name, shape, dtype in self.specs if included(name, np.dtype(dtype).kind)]
        return Layout(tuple(name for name, _ in chosen), tuple(shape for _, shape in chosen))

    def empty(self) -> tuple[Tensor, Buffers]:
        """A vector and buffers to read into."""
        integers = torch.empty(self.integers.size, dtype=torch.int64)
        return torch.empty(self.parameters.size), Buffers(torch.empty(self.floats.size), integers)

    @cached_property
    def lossless(self) -> bool:
        """Whether vector and buffers hold what the arrays do, to the bit."""
        return {dtype for _, _, dtype in self.specs} <= {"float32", "int64"}

    def read(self, record: ArrayRecord, vector: Tensor, buffers: Buffers | None, minus: Tensor | None = None) -> None:
        """Copy a record's arrays into vector and buffers, or only a vector; a ValueError says what does not fit.

        The vector becomes the parameters, or their difference to ``minus``.
        """
        parts = [(self.parameters, vector)]
        if buffers is not None:
            parts += [(self.floats, buffers.floats), (self.integers, buffers.integers)]
        expected = {name for layout, _ in parts for name in layout.names}
        if missing := expected - set(record):
            raise ValueError(f"arrays are missing: {_few(missing)}")
        if unknown := set(record) - expected:
            raise ValueError(f"there are arrays that were not asked for: {_few(unknown)}")
        for layout, flat in parts:
            into, origin = flat.numpy(), minus.numpy() if minus is not None and layout is self.parameters else None
            for (name, part), shape in zip(layout.slices.items(), layout.shapes, strict=True):
                array = values(record[name])
                if array.shape != shape:
                    raise ValueError(f"wrong shape: array '{name}', expected {shape}, found {array.shape}")
                if (array.dtype.kind == "f") != flat.is_floating_point():
                    raise ValueError(f"array '{name}': expected {into.dtype}, found {array.dtype}")
                with np.errstate(all="ignore"):  # what float32 cannot hold becomes infinite, which is noticed
                    if origin is None:
                        into[part] = array.ravel()
                    else:
                        np.subtract(array.ravel(), origin[part], out=into[part], casting="same_kind")

    def record(self, vector: Tensor, buffers: Buffers) -> ArrayRecord:
        """Vector and buffers as the app's own arrays: same names, shapes, dtypes and order."""
        parts = ((self.parameters, vector), (self.floats, buffers.floats), (self.integers, buffers.integers))
        tensors: Mapping[str, Tensor] = dict(chain.from_iterable(layout.tensors(flat) for layout, flat in parts))
        return ArrayRecord({name: Array(_as(tensors[name].numpy(), dtype)) for name, _, dtype in self.specs})


def _as(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Values in a type; those beyond a narrow type of floats become its largest ones instead of infinite."""
    if dtype == "float16":
        values = values.clip(np.finfo(dtype).min, np.finfo(dtype).max)
    return values.astype(dtype, copy=False)


def _few(names: Iterable[str]) -> str:
    """The first names of many."""
    found = sorted(names)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
