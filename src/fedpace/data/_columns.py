"""Columns of Arrow tables as arrays: numbers, and categories with their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from fedpace.core import DataError
from fedpace.data.examples import Array, Indices


def plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as text, booleans, integers or floats in double precision, of which none is NaN: it is missing."""
    kind = column.type
    if not is_readable(kind):
        raise DataError(f"column '{name}': expected numbers, text or booleans, found {kind}; leave it out")
    if types.is_dictionary(kind):
        return plain(name, column.cast(kind.value_type))
    if types.is_string_view(kind):
        return column.cast(pa.string())  # of views nobody counts what differs
    if is_text(kind) or types.is_boolean(kind) or types.is_integer(kind):
        return column
    numbers = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(numbers), None, numbers)


def is_readable(kind: pa.DataType) -> bool:
    """Whether values are numbers, text or booleans, and not dates, lists or the like."""
    if types.is_dictionary(kind):
        return is_readable(kind.value_type)
    known = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return is_text(kind) or any(is_kind(kind) for is_kind in known)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def as_numbers(name: str, column: pa.ChunkedArray) -> Array:
    """Numbers in single precision; NaN where the column has none.

    >>> as_numbers("age", pa.chunked_array([[40, None]]))
    array([40., nan], dtype=float32)
    """
    column = plain(name, column)
    if is_text(column.type):
        found = next((text for text in column.unique().to_pylist() if text is not None), "")
        raise DataError(f"column '{name}': expected numbers, found text such as '{found}'")
    with np.errstate(over="ignore"):  # whoever checks the result finds infinity
        single: Array = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float32)
    return single


def as_codes(name: str, column: pa.ChunkedArray) -> tuple[Indices, tuple[str, ...]]:
    """Codes of the column's values, -1 where it has none, and their names in order.

    >>> as_codes("group", pa.chunked_array([[10, 2, None, 10]]))
    (array([ 1,  0, -1,  1]), ('2', '10'))
    """
    dictionary = plain(name, column).dictionary_encode().unify_dictionaries().combine_chunks()
    values = dictionary.dictionary.to_pylist()
    names = tuple(dict.fromkeys(map(_text, sorted(values))))
    index = {text: code for code, text in enumerate(names)}
    codes = np.array([*(index[_text(value)] for value in values), -1], dtype=np.int64)  # the last one is for missing
    return codes[dictionary.indices.fill_null(-1).to_numpy()], names


def _text(value: Any) -> str:
    """The same text for 1 and 1.0: a column of whole numbers with a gap may be read as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
