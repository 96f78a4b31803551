"""Data: a source gives examples, a partition deals them to clients, the result is a federation."""

from fedpace.data._arrays import Pair
from fedpace.data._load import load
from fedpace.data.data import Data
from fedpace.data.dataset import Dataset
from fedpace.data.federation import Federation, Shard
from fedpace.data.partitions import (
    Assignment,
    ClassesPerClient,
    Dirichlet,
    DirichletHsu,
    Iid,
    LeaveOneDomainOut,
    Partition,
    Pathological,
    Practical,
    Quantity,
    Shards,
    Writers,
    partitions,
)
from fedpace.data.picture import counts_table, save_counts_figure, save_examples_figure
from fedpace.data.shifts import Coloured, Mechanism, Rotated, Setting, Shift, shifts
from fedpace.data.sources import Source, sources

__all__ = [
    "Assignment",
    "ClassesPerClient",
    "Coloured",
    "Data",
    "Dataset",
    "Dirichlet",
    "DirichletHsu",
    "Federation",
    "Iid",
    "LeaveOneDomainOut",
    "Mechanism",
    "Pair",
    "Partition",
    "Pathological",
    "Practical",
    "Quantity",
    "Rotated",
    "Setting",
    "Shard",
    "Shards",
    "Shift",
    "Source",
    "Writers",
    "counts_table",
    "load",
    "partitions",
    "save_counts_figure",
    "save_examples_figure",
    "shifts",
    "sources",
]
