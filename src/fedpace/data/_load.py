"""One entry to all data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError, DataError, parse
from fedpace.data._arrays import Pair, from_arrays, is_texts
from fedpace.data.data import Data
from fedpace.data.sources import Folder, Leaf, Parquet, Source, Text, sources
from fedpace.data.sources.leaf import json_splits
from fedpace.data.sources.parquet import find_splits
from fedpace.data.sources.table import Frame, Table, from_frame, is_frame, is_parquet_table


def load(source: str | Path | Pair | list[str] | Data | Source | Mapping[str, Any] | Frame, **parameters: Any) -> Data:
    """Load data.

    ``source`` is one of

    * a registered name (``fedpace.data.sources.names()``) with its parameters, such as ``size`` for images;
    * a path: a parquet file, a folder with ``train.parquet``, a folder of LEAF's JSON files, a folder of images
      (``class_name/image.png``), a text (``.txt``), or a table (CSV, or parquet without images) with its ``target``;
    * a DataFrame of pandas or a table of pyarrow, with its ``target`` (:class:`fedpace.data.sources.Table` has more);
    * a list of texts, with the parameters of the source ``texts``;
    * a pair ``(inputs, labels)`` of arrays, tensors or texts, with ``test=(inputs, labels)`` if there is a test set;
    * a source, a table with ``name``, or data that are loaded already.

    >>> load("digits")
    Data('digits': 1438 training examples, 359 test examples, 10 classes, shape (1, 8, 8))
    """
    if isinstance(source, str | Path):
        return _named(source, parameters).load()
    if is_texts(source) and isinstance(source, list):
        return parse(sources, {"name": "texts", "texts": source, **parameters}).load()
    if isinstance(source, tuple | list):
        test = parameters.pop("test", None)
        _refuse(parameters, "arrays take 'test' only")
        return from_arrays(tuple(source), test)
    if is_frame(source):
        return from_frame(source, parameters)
    _refuse(parameters, "they belong to a name or a path")
    return source if isinstance(source, Data) else parse(sources, source).load()


def _named(source: str | Path, parameters: dict[str, Any]) -> Source:
    """A registered name, the import path of a source, or a path; names win (write ``./digits`` for a folder)."""
    path = Path(source).expanduser()
    looks_like_path = isinstance(source, Path) or "/" in source or source.endswith((".parquet", ".txt", ".csv"))
    if source in sources.names() or not (looks_like_path or path.exists()):
        return parse(sources, {"name": source, **parameters})
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder; expected parquet, CSV or images, or one of {', '.join(sources.names())}"
        )
    return parse(sources, {"name": _kind(path, "target" in parameters).registered_name(), "path": path, **parameters})


def _kind(path: Path, has_target: bool) -> type[Source]:
    if path.suffix.lower() == ".csv" or (has_target and is_parquet_table(path)):
        return Table
    if find_splits(path):  # first, because the hub puts JSON files beside parquet
        return Parquet
    if json_splits(path):
        return Leaf
    if path.suffix == ".txt":
        return Text
    return Parquet if path.is_file() else Folder


def _refuse(parameters: dict[str, Any], why: str) -> None:
    if parameters:
        raise ConfigError(f"load: unknown parameters {sorted(parameters)}: {why}")
