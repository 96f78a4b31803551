"""One entry to all data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, overload

from torch.utils.data import Dataset as TorchDataset

from fedpace.core import ConfigError, DataError, parse
from fedpace.data._arrays import Pair, from_arrays, is_texts
from fedpace.data._federated import federated
from fedpace.data._flower import Partitioned, from_flower
from fedpace.data._hugging_face import from_hugging_face, is_hugging_face
from fedpace.data._natural import named
from fedpace.data._torch import from_torch
from fedpace.data.data import Data
from fedpace.data.federation import Federation
from fedpace.data.sources import Folder, Leaf, Parquet, Source, Text, sources
from fedpace.data.sources.leaf import json_splits
from fedpace.data.sources.parquet import find_splits
from fedpace.data.sources.table import Frame, Table, from_frame, is_frame, is_parquet_table

Loadable = str | Path | Pair | list[str] | Frame | Data | Source | Mapping[str, Any] | TorchDataset[Any]
"""What :func:`load` makes data of."""


@overload
def load(source: Partitioned, **parameters: Any) -> Federation: ...
@overload
def load(source: Loadable, **parameters: Any) -> Data: ...
def load(source: Loadable | Partitioned, **parameters: Any) -> Data | Federation:
    """Load data.

    ``source`` is one of

    * a registered name (``fedpace.data.sources.names()``) with its parameters, such as ``size`` for images;
    * a path: a parquet file, a folder with ``train.parquet``, a folder of LEAF's JSON files, a folder of images
      (``class_name/image.png``), a text (``.txt``), or a table (CSV, or parquet without images) with its ``target``;
    * a DataFrame of pandas or a table of pyarrow, with its ``target`` (:class:`fedpace.data.sources.Table` has more);
    * a list of texts, with the parameters of the source ``texts``;
    * a pair ``(inputs, labels)`` of arrays, tensors or texts, with ``test=(inputs, labels)`` if there is a test set;
    * a map-style data set of PyTorch, or anything else with a length and examples ``(input, target)``, with ``test=``
      another one; examples that are mappings have their target under ``target="label"``;
    * a data set of Hugging Face's ``datasets``, or a dictionary of splits; ``inputs=`` and ``target=`` name columns;
    * a federated data set or a partitioner of ``flwr_datasets``, whose partitions are the clients: the result is then
      a :class:`Federation`; without a test split, ``test_share`` of each client's examples is held out;
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
    reader = _reader(source)
    if reader is not None:
        known = list(signature(reader).parameters)[1:]
        _refuse({key: parameters[key] for key in parameters if key not in known}, f"expected some of {known}")
        return reader(source, **parameters)
    _refuse(parameters, "they belong to a name or a path")
    return source if isinstance(source, Data) else parse(sources, source).load()


def federate(
    clients: Mapping[Any, Any] | Sequence[Any],
    *,
    test: Any = None,
    test_share: float | None = None,
    names: Sequence[Any] | None = None,
    seed: int = 0,
) -> Federation:
    """A federation of clients that bring their data: by name, or in a list.

    Each is :class:`Data`, or anything that :func:`load` takes. All must agree in shape and kind; classes are matched by
    their names, so a client may lack some. A client's test set is the one that its data have. Where there is none, a
    ``test_share`` of its examples is held out: a fifth by default, or none if there is a global ``test`` set. Without
    that, all clients' test sets together are the global one; of data with a test set, ``test`` uses only this.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> hospitals = {name: (rng.normal(size=(10, 4)), rng.integers(0, 3, 10)) for name in ("north", "south")}
    >>> federate(hospitals)
    Federation('clients': 2 clients with 16 examples, 4 test examples, 3 classes, shape (4,))
    """
    brought = {name: _own(name, data) for name, data in named(clients, names).items()}
    return federated("clients", brought, None if test is None else _own("test", test), test_share, seed)


def _own(name: str, data: Any) -> Data:
    loaded: Data | Federation = load(data)
    if isinstance(loaded, Federation):
        raise DataError(f"'{name}': expected the data of one client, found a federation: {loaded}")
    return loaded


def _reader(source: Any) -> Callable[..., Data | Federation] | None:
    """What reads the data of another library."""
    if isinstance(source, Partitioned):
        return from_flower
    if is_hugging_face(source):
        return from_hugging_face
    if isinstance(source, Data | Source | Mapping):
        return None
    return from_torch if hasattr(source, "__getitem__") or hasattr(source, "__iter__") else None


def _named(source: str | Path, parameters: dict[str, Any]) -> Source:
    """A registered name, the import path of a source, or a path; names win (write ``./digits`` for a folder)."""
    _refuse({key: parameters[key] for key in parameters if key == "name"}, "the source has one")
    path = Path(source).expanduser()
    looks_like_path = isinstance(source, Path) or "/" in source or source.endswith((".parquet", ".txt", ".csv"))
    if source in sources.names() or not (looks_like_path or path.exists()):
        return parse(sources, {"name": source, **parameters})
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder; expected parquet, CSV or images, or one of {', '.join(sources.names())}"
        )
    _refuse({key: parameters[key] for key in parameters if key == "path"}, "the source is one")
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
