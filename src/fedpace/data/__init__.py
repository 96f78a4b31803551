"""Data: a source gives examples, a partition deals them to clients, the result is a federation."""

from fedpace.data._arrays import Pair
from fedpace.data._load import load
from fedpace.data.data import Data
from fedpace.data.dataset import Dataset
from fedpace.data.federation import Federation, Shard
from fedpace.data.partitions import (
    Assignment,
    Dirichlet,
    DirichletPfllib,
    Iid,
    LeaveOneDomainOut,
    Partition,
    Shards,
    partitions,
)
from fedpace.data.picture import counts_table, save_counts_figure
from fedpace.data.sources import Source, sources

__all__ = [
    "Assignment",
    "Data",
    "Dataset",
    "Dirichlet",
    "DirichletPfllib",
    "Federation",
    "Iid",
    "LeaveOneDomainOut",
    "Pair",
    "Partition",
    "Shard",
    "Shards",
    "Source",
    "counts_table",
    "load",
    "partitions",
    "save_counts_figure",
    "sources",
]
