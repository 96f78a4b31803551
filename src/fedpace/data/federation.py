"""Clients and their examples."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from html import escape

import numpy as np
import torch
from torch import Tensor

from fedpace.core import PartitionError
from fedpace.data.dataset import Array, Dataset, Indices


@dataclass(frozen=True, eq=False)
class Shard:
    """One client's examples, or a test set: a data set and the indices that belong to it."""

    dataset: Dataset
    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> Indices:
        """The labels of this shard, in its order."""
        return self.dataset.labels[self.indices]

    def batch(self, positions: Tensor | Array | slice) -> tuple[Tensor, Tensor]:
        """Inputs (float32) and labels (int64) at ``positions`` of this shard.

        Images become (x/255 - 0.5) / 0.5, in channels_last memory. The constants are fixed (PFLlib's convention): in a
        federation nobody knows the mean and deviation of the pooled data.
        """
        indices = self.indices[positions if isinstance(positions, slice) else np.asarray(positions)]
        # Indexing with an array copies, so torch never sees the read-only memory of a mapped file.
        inputs = torch.from_numpy(self.dataset.inputs[indices])
        labels = torch.from_numpy(self.dataset.labels[indices])
        if inputs.dtype == torch.uint8:
            inputs = inputs.float().mul_(2 / 255).sub_(1).permute(0, 3, 1, 2)
        return inputs, labels

    def class_counts(self) -> Indices:
        """How many examples of each class there are."""
        return np.bincount(self.labels, minlength=len(self.dataset.classes))


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their training shards, and a test set.

    ``client_tests`` holds one test shard per client where the partition makes them (personalised methods need them).
    No client is empty, and no example belongs to two clients.
    """

    name: str
    clients: tuple[Shard, ...]
    client_names: tuple[str, ...]
    test: Shard
    client_tests: tuple[Shard, ...] | None = None

    def __post_init__(self) -> None:
        tests = self.clients if self.client_tests is None else self.client_tests
        if not len(self.clients) == len(self.client_names) == len(tests) > 0:
            raise PartitionError(
                f"expected at least one client, and as many names and tests as clients; found {len(self.clients)} "
                f"clients, {len(self.client_names)} names and {len(tests)} tests"
            )
        for name, shard in zip(self.client_names, self.clients, strict=True):
            if not len(shard):
                raise PartitionError(
                    f"client '{name}' has no training examples; use fewer clients, a larger alpha or more data"
                )
        _check_disjoint(self.clients)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.test.dataset.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """One example's shape as a model sees it."""
        return self.test.dataset.shape

    def __len__(self) -> int:
        return len(self.clients)

    def counts(self) -> Indices:
        """Training examples, clients × classes."""
        return np.stack([shard.class_counts() for shard in self.clients])

    def fingerprint(self) -> str:
        """A digest of who holds which labels: other data, or another deal of them, have another one."""
        digest = blake2b(repr((self.classes, self.shape, self.client_names)).encode(), digest_size=16)
        for shard in (*self.clients, *(self.client_tests or ()), self.test):
            digest.update(len(shard).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(shard.indices).tobytes() + np.ascontiguousarray(shard.labels).tobytes())
            digest.update(np.ascontiguousarray(shard.dataset.inputs[shard.indices[0]]).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        examples = sum(map(len, self.clients))
        return (
            f"Federation('{self.name}': {len(self)} clients with {examples} examples, {len(self.test)} test examples, "
            f"{len(self.classes)} classes, shape {self.shape})"
        )

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{escape(cell)}</th>" for cell in ("client", *self.classes))
        rows = (
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{count}</td>' for count in counts)}</tr>"
            for name, counts in zip(self.client_names, self.counts(), strict=True)
        )
        return f"<p>{escape(repr(self))}</p><table><tr>{header}</tr>{''.join(rows)}</table>"


def _check_disjoint(shards: tuple[Shard, ...]) -> None:
    """Indices must exist, and within one data set no index may be used twice."""
    by_dataset: dict[int, list[Shard]] = defaultdict(list)
    for shard in shards:
        by_dataset[id(shard.dataset)].append(shard)
    for group in by_dataset.values():
        size = len(group[0].dataset)
        indices = np.concatenate([shard.indices for shard in group])
        if indices.min() < 0 or indices.max() >= size:
            raise PartitionError(
                f"indices out of range: expected 0 to {size - 1}, found {indices.min()} to {indices.max()}"
            )
        times = np.bincount(indices)
        if times.max() > 1:
            raise PartitionError(f"example {times.argmax()} is used {times.max()} times; each belongs to one client")
