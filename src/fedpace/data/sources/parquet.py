"""Parquet files in the layout of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from fedpace.core import DataError, one_line
from fedpace.data._columns import is_text
from fedpace.data._encode import encode
from fedpace.data._parquet import DAMAGED, read_columns
from fedpace.data.data import Data
from fedpace.data.examples import Array, Examples, Indices
from fedpace.data.sources._cache import cached
from fedpace.data.sources._images import decode_all
from fedpace.data.sources._source import ImageSource, sources

IMAGES = ("image", "img")
LABELS = ("label", "fine_label")
TRAIN = ("train",)
TEST = ("test", "validation", "valid")


@sources.register("parquet")
class Parquet(ImageSource):
    """Encoded images in parquet: one file, or a folder with ``train.parquet`` and perhaps ``test.parquet``.

    The hub's names (``train-*.parquet``, ``data/train-*.parquet``, ``validation``) are found too. Columns: ``image`` or
    ``img`` (struct of bytes and path), ``label`` or ``fine_label`` (integers or strings), and perhaps ``domain``.

    Parameters: ``path``; ``size`` to resize to.
    """

    path: Path

    def load(self) -> Data:
        """Read the file or the folder."""
        if self.path.is_file():
            return read(self.path.stem, [[self.path]], self.size)
        splits = find_splits(self.path)
        if not splits:
            raise DataError(f"{self.path}: expected a parquet file, or a folder with train.parquet, found neither")
        return read(self.path.name, splits, self.size)


def find_splits(folder: Path) -> list[list[Path]]:
    """The files of the training set and, if there is one, of the test set; nothing if there is no training set."""
    splits = [_find_split(folder, names) for names in (TRAIN, TEST)]
    return [files for files in splits if files] if splits[0] else []


def _find_split(folder: Path, names: Sequence[str]) -> list[Path]:
    patterns = [
        pattern.format(name) for name in names for pattern in ("{}.parquet", "{}-*.parquet", "data/{}-*.parquet")
    ]
    return next((found for pattern in patterns if (found := sorted(folder.glob(pattern)))), [])


def read(
    name: str,
    splits: list[list[Path]],
    size: int | None,
    known: tuple[str, ...] = (),
    *,
    label: Sequence[str] = LABELS,
    domain: str | None = None,
) -> Data:
    """Data of one or two splits; ``known`` are the class names where they are known beforehand.

    ``label`` and ``domain`` name the columns; without the latter, a column "domain" is used if there is one.
    """
    where = splits[0][0]
    labels, classes = encode(f"{where}: labels", [_column(files, label) for files in splits], known)
    domains: Sequence[Indices | None] = [None] * len(splits)
    domain_names: tuple[str, ...] = ()
    if domain is None and "domain" in _schema(where).names:
        domain = "domain"
    if domain is not None:
        domains, domain_names = encode(f"{where}: domains", [_column(files, (domain,)) for files in splits])
    sides = []
    for files, split_labels, split_domains in zip(splits, labels, domains, strict=True):
        if not len(split_labels):
            raise DataError(f"{files[0]}: expected rows, found none")
        try:
            sides.append(
                Examples(_images(files, len(split_labels), size), split_labels, classes, split_domains, domain_names)
            )
        except DataError as error:
            raise DataError(f"{files[0]}: {error}") from None
    return Data(name, *sides)


def _images(files: list[Path], total: int, size: int | None) -> Array:
    return cached(files, size, lambda: decode_all(_encoded(files), total, size))


def _column(files: list[Path], names: Sequence[str]) -> Array:
    """A whole column of small values."""
    parts = []
    for file in files:
        name = _column_name(file, names)
        with _readable(file):
            column = read_columns(file, [name]).column(name)
            parts.append(_values(f"{file}: column '{name}'", column))
    return np.concatenate(parts)


def _values(where: str, column: pa.ChunkedArray) -> Array:
    """Integers or text, however they are encoded."""
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not types.is_integer(kind) and not is_text(kind):
        raise DataError(f"{where}: expected integers or text, found {column.type}")
    values = column.cast(kind).cast(pa.int64() if types.is_integer(kind) else pa.string())
    if values.null_count:
        raise DataError(f"{where}: expected a value in each row, found {values.null_count} rows without")
    found: Array = values.to_numpy()
    return found


def _encoded(files: list[Path]) -> Iterator[tuple[str, bytes]]:
    """The encoded images one by one, each with its place."""
    for file in files:
        name = _column_name(file, IMAGES)
        _check_images(f"{file}: column '{name}'", _schema(file).field(name).type)
        row = 0
        with _readable(file):
            # One by one, and equal images once: a thousand of them may be far larger than the file.
            reader = pq.ParquetFile(file, read_dictionary=[f"{name}.bytes"])
            for batch in reader.iter_batches(batch_size=1024, columns=[name]):
                for image in batch.column(0):
                    yield f"row {row} of {file}", (image.as_py() or {}).get("bytes") or b""
                    row += 1


def _check_images(where: str, kind: pa.DataType) -> None:
    inner = kind.field("bytes").type if types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else pa.null()
    if not any(is_kind(inner) for is_kind in (types.is_binary, types.is_large_binary, types.is_binary_view)):
        raise DataError(f"{where}: expected images as structs with 'bytes', found {kind}")


def _column_name(file: Path, names: Sequence[str]) -> str:
    found = _schema(file).names
    chosen = next((name for name in names if name in found), None)
    if chosen is None:
        raise DataError(f"{file}: expected a column '{' or '.join(names)}', found {', '.join(found)}; rename one")
    if found.count(chosen) > 1:
        raise DataError(f"{file}: expected one column '{chosen}', found {found.count(chosen)}")
    return chosen


def _schema(file: Path) -> pa.Schema:
    with _readable(file):
        return pq.read_schema(file)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """A file that parquet cannot read is the user's error, with its name."""
    try:
        yield
    except DAMAGED as error:
        reason = one_line(error)[:200]
        raise DataError(
            f"{file}: expected a complete parquet file, but it is damaged ({reason}); fetch it again"
        ) from None
