"""Reading parquet, whose columns may be far larger than their file: equal values are stored once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from fedpace.data._limits import check_columns, check_unpacked

DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What reading a file that is damaged raises."""

_TEXT = "BYTE_ARRAY"  # values of any length: what they take is known once their dictionary is read
_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def read_columns(path: Path, names: Collection[str] | None = None) -> pa.Table:
    """Some columns of a file, or all of them; checked before they are unpacked."""
    with pq.ParquetFile(path) as file:
        check_columns(path, file.metadata.num_columns)
        chunks = [chunk for chunk in _chunks(file.metadata) if names is None or _top(chunk.path_in_schema) in names]
        stored, claimed = path.stat().st_size, sum(chunk.total_uncompressed_size for chunk in chunks)
        fixed = sum(chunk.num_values * _width(file, chunk) for chunk in chunks)
        check_unpacked(str(path), stored, max(claimed, fixed))
        texts = sorted({chunk.path_in_schema for chunk in chunks if chunk.physical_type == _TEXT})
    table = pq.read_table(path, columns=None if names is None else list(names), read_dictionary=texts)
    check_unpacked(str(path), stored, fixed + sum(map(_text_bytes, table.columns)))
    return pa.table({name: _decoded(table[name]) for name in table.column_names}) if texts else table


def _top(path: str) -> str:
    return path.partition(".")[0]


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            yield metadata.row_group(group).column(column)


def _width(file: pq.ParquetFile, chunk: pq.ColumnChunkMetaData) -> int:
    """Bytes of a value."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(next(column.length for column in file.schema if column.path == chunk.path_in_schema))
    return _BYTES.get(chunk.physical_type, 0)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """What a column of texts takes once each row has its own."""
    if not _is_coded(column.type):
        return 0
    lengths = (pc.take(pc.binary_length(part.dictionary), part.indices) for part in column.chunks)
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if _is_coded(column.type) else column


def _is_coded(kind: pa.DataType) -> bool:
    return bool(types.is_dictionary(kind)) and not types.is_primitive(kind.value_type)
