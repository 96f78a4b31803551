"""Data: a source gives examples, a partition deals them to clients, the result is a federation."""

from fedpace.data._arrays import Pair
from fedpace.data._flower import Partitioned
from fedpace.data._load import Loadable, federate, load
from fedpace.data.augmentations import Augmentation, Crop, Flip, augmentations, parse_augmentations
from fedpace.data.data import Data
from fedpace.data.encoding import Encoding
from fedpace.data.examples import Column, Examples
from fedpace.data.federation import Federation, kind_of_targets
from fedpace.data.hands import Hands
from fedpace.data.partitions import (
    Assignment,
    By,
    ClassesPerClient,
    Dirichlet,
    DirichletHsu,
    Iid,
    LeaveOneDomainOut,
    Partition,
    Pathological,
    Practical,
    Quantity,
    SortedShards,
    Writers,
    partitions,
)
from fedpace.data.picture import counts_json, counts_table, save_counts_figure, save_examples_figure
from fedpace.data.ragged import PAD, Ragged
from fedpace.data.shard import Batch, Shard
from fedpace.data.shards import Shards, shards_of
from fedpace.data.shifts import Coloured, Mechanism, Population, Rotated, Shift, shifts
from fedpace.data.sources import Source, sources
from fedpace.data.table import Schema, Unseen
from fedpace.data.tokenizers import Characters, Pretrained, Tokenizer

__all__ = [
    "PAD",
    "Assignment",
    "Augmentation",
    "Batch",
    "By",
    "Characters",
    "ClassesPerClient",
    "Coloured",
    "Column",
    "Crop",
    "Data",
    "Dirichlet",
    "DirichletHsu",
    "Encoding",
    "Examples",
    "Federation",
    "Flip",
    "Hands",
    "Iid",
    "LeaveOneDomainOut",
    "Loadable",
    "Mechanism",
    "Pair",
    "Partition",
    "Partitioned",
    "Pathological",
    "Population",
    "Practical",
    "Pretrained",
    "Quantity",
    "Ragged",
    "Rotated",
    "Schema",
    "Shard",
    "Shards",
    "Shift",
    "SortedShards",
    "Source",
    "Tokenizer",
    "Unseen",
    "Writers",
    "augmentations",
    "counts_json",
    "counts_table",
    "federate",
    "kind_of_targets",
    "load",
    "parse_augmentations",
    "partitions",
    "save_counts_figure",
    "save_examples_figure",
    "shards_of",
    "shifts",
    "sources",
]
