"""Clients and their examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from html import escape
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpace.core import Inputs, PartitionError, derive
from fedpace.data.dataset import Array, Arrays, Dataset, Indices, Shape, taken
from fedpace.data.shifts import Mechanism, Setting, Shift


class Batch(NamedTuple):
    """Some examples as tensors."""

    inputs: Inputs
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Shard:
    """One client's examples, or a test set: a data set, the indices that belong to it, and perhaps a shift of them."""

    dataset: Dataset
    indices: Indices
    mechanism: Mechanism | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it."""
        shape = self.dataset.shape
        return shape if self.mechanism is None or isinstance(shape, dict) else self.mechanism.shape(shape)

    @property
    def labels(self) -> Indices:
        """The classes of this shard's examples, in its order."""
        return self.dataset.labels[self.indices]

    @property
    def targets(self) -> Array:
        """The targets of this shard's examples, in its order."""
        found: Array = self.dataset.targets[self.indices]
        return found

    def batch(self, positions: Tensor | Array | slice) -> Batch:
        """Inputs and targets at ``positions`` of this shard. Integers stay integers.

        Images become (x/255 - 0.5) / 0.5, in channels_last memory. The constants are fixed (PFLlib's convention): in a
        federation nobody knows the mean and deviation of the pooled data.
        """
        arrays, targets = self.arrays(positions)
        if isinstance(arrays, Mapping):
            return Batch({name: _tensor(array) for name, array in arrays.items()}, torch.from_numpy(targets))
        return Batch(_tensor(arrays), torch.from_numpy(targets))

    def arrays(self, positions: Tensor | Array | slice) -> tuple[Arrays, Array]:
        """Inputs as the data set has them, but shifted, and targets at ``positions`` of this shard."""
        indices = self.indices[positions if isinstance(positions, slice) else np.asarray(positions)]
        # Indexing with an array copies, so torch never sees the read-only memory of a mapped file.
        inputs, targets = taken(self.dataset.inputs, indices), self.dataset.targets[indices]
        if self.mechanism is not None and not isinstance(inputs, Mapping):
            inputs = np.ascontiguousarray(self.mechanism(inputs, targets, indices))
        return inputs, targets

    def class_counts(self) -> Indices:
        """How many examples of each class there are; where there are no classes, how many examples."""
        if not self.dataset.classes:
            return np.array([len(self)])
        return np.bincount(self.labels, minlength=len(self.dataset.classes))


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their training shards, and a test set.

    ``client_tests`` holds one test shard per client where the partition has a ``test_share`` (personalised methods need
    them); the ``test`` set is then all of them together, unless the partition holds one out. No client is empty, and no
    example belongs to two clients.
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
        for name, test in zip(self.client_names, tests, strict=True):
            if not len(test):
                raise PartitionError(f"client '{name}' has no test examples; use fewer clients or a larger test_share")
        _check_disjoint(self.clients)
        shapes = {str(shard.shape) for shard in (*self.clients, *tests, self.test)}
        if len(shapes) > 1:
            raise PartitionError(f"expected examples of one shape, found {', '.join(sorted(shapes))}")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.test.dataset.classes

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return self.test.dataset.outputs

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it."""
        return self.test.shape

    def __len__(self) -> int:
        return len(self.clients)

    def counts(self) -> Indices:
        """Training examples, clients × classes; of all kinds together where there are no classes."""
        return np.stack([shard.class_counts() for shard in self.clients])

    def shifted(self, shift: Shift, seed: int = 0) -> Federation:
        """The same clients, each seeing its examples through a mechanism of its own, and a test set through another."""
        tests = self.client_tests or ()
        for dataset in {id(shard.dataset): shard.dataset for shard in (*self.clients, *tests, self.test)}.values():
            shift.check(dataset)
        setting = Setting(len(self), len(self.classes), derive(seed, "shift"))
        mechanisms = [shift.for_client(client, setting) for client in range(len(self))]

        def seen(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
            return tuple(replace(shard, mechanism=own) for shard, own in zip(shards, mechanisms, strict=True))

        return replace(
            self,
            name=f"{self.name}/{shift.registered_name()}",
            clients=seen(self.clients),
            client_tests=None if self.client_tests is None else seen(self.client_tests),
            test=replace(self.test, mechanism=shift.for_test(setting)),
        )

    def fingerprint(self) -> str:
        """A digest of who holds which labels: other data, another deal or another shift of them have another one."""
        digest = blake2b(repr((self.classes, self.shape, self.client_names)).encode(), digest_size=16)
        for shard in (*self.clients, *(self.client_tests or ()), self.test):
            digest.update(len(shard).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(shard.indices).tobytes() + np.ascontiguousarray(shard.targets).tobytes())
            digest.update(np.ascontiguousarray(shard.dataset.inputs[shard.indices[0]]).tobytes())
            if shard.mechanism is not None:
                digest.update(repr(shard.mechanism).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        examples = sum(map(len, self.clients))
        return (
            f"Federation('{self.name}': {len(self)} clients with {examples} examples, {len(self.test)} test examples, "
            f"{kind_of_targets(self.test.dataset)}, shape {self.shape})"
        )

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{escape(cell)}</th>" for cell in ("client", *(self.classes or ("examples",))))
        rows = (
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{count}</td>' for count in counts)}</tr>"
            for name, counts in zip(self.client_names, self.counts(), strict=True)
        )
        return f"<p>{escape(repr(self))}</p><table><tr>{header}</tr>{''.join(rows)}</table>"


def kind_of_targets(dataset: Dataset) -> str:
    """What is to be learnt, in words."""
    if dataset.classes:
        return f"{len(dataset.classes)} classes"
    return f"{len(dataset.vocabulary)} tokens" if dataset.vocabulary else f"{dataset.outputs} number(s) to predict"


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


def _tensor(array: Array) -> Tensor:
    tensor = torch.from_numpy(array)
    if tensor.dtype == torch.uint8:
        tensor = tensor.float().mul_(2 / 255).sub_(1).permute(0, 3, 1, 2)
    return tensor
