"""Federated data sets of Flower's ``flwr_datasets``, which need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from fedpace.core import DataError
from fedpace.data._federated import federated
from fedpace.data._hugging_face import TESTS, from_hugging_face
from fedpace.data.data import Data
from fedpace.data.federation import Federation


@runtime_checkable
class Partitioned(Protocol):
    """A ``FederatedDataset`` or a ``Partitioner`` of Flower's."""

    def load_partition(self, partition_id: int) -> Any:
        """A client's data set."""


def from_flower(
    source: Partitioned,
    *,
    inputs: str | Sequence[str] | None = None,
    target: str | None = None,
    test: Any = None,
    test_share: float | None = None,
) -> Federation:
    """A federation whose clients are the partitions.

    A federated data set's partitioned split "train", or its only one, is the clients'. Its split "test" or
    "validation" is the global test set; where that is partitioned, too, each client has its part of it. Without any, a
    ``test_share`` of each client's examples is held out, by default a fifth.
    """

    def read(train: Any, own_test: Any = None) -> Data:
        return from_hugging_face(train, inputs=inputs, target=target, test=own_test)

    splits = getattr(source, "partitioners", {"train": source})
    train = splits.get("train") or next(iter(splits.values()))
    name = type(train).__name__
    if not train.is_dataset_assigned():
        raise DataError(f"{name}: expected a partitioner with data, found none; set its dataset first")
    tests = next((splits[split] for split in TESTS if split in splits), None)
    if test is None and tests is None and hasattr(source, "load_split"):
        test = _split(source)
    numbers = range(train.num_partitions)
    if tests is not None and tests.num_partitions != len(numbers):
        raise DataError(
            f"{name}: expected as many parts of the test split as clients ({len(numbers)}), found "
            f"{tests.num_partitions}"
        )
    data = [read(train.load_partition(n), tests and tests.load_partition(n)) for n in numbers]
    names = getattr(train, "partition_id_to_natural_id", {})  # known once a partition was loaded
    clients = {str(names.get(n, n)): data[n] for n in numbers}
    return federated(name, clients, None if test is None else read(test), test_share, seed=0)


def _split(source: Any) -> Any:
    """The test split, if there is one."""
    for split in TESTS:
        try:
            return source.load_split(split)
        except ValueError:  # there is none of this name
            continue
    return None
