"""Flat vectors and their layout, named seeds, typed settings and errors: what every room stands on."""

from fedpace.core.errors import (
    ClientError,
    ConfigError,
    DataError,
    FedpaceError,
    ModelError,
    PartitionError,
    RunFolderError,
)
from fedpace.core.flat import Buffers, FlatModule
from fedpace.core.layout import Layout
from fedpace.core.seeds import derive, numpy_stream, torch_stream
from fedpace.core.settings import Named, Registry, Settings, parse

__all__ = [
    "Buffers",
    "ClientError",
    "ConfigError",
    "DataError",
    "FedpaceError",
    "FlatModule",
    "Layout",
    "ModelError",
    "Named",
    "PartitionError",
    "Registry",
    "RunFolderError",
    "Settings",
    "derive",
    "numpy_stream",
    "parse",
    "torch_stream",
]
