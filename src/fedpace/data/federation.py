"""Clients and their examples."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fedpace.core import Inputs, PartitionError, derive, for_html, numpy_stream
from fedpace.data.augmentations import Augmentation, augmented, parse_augmentations
from fedpace.data.encoding import Encoding
from fedpace.data.examples import Array, Arrays, Examples, Indices, Rows, Shape, per_input, taken
from fedpace.data.ragged import PAD, Ragged
from fedpace.data.shifts import Mechanism, Population, Shift


class Batch(NamedTuple):
    """Some examples as tensors."""

    inputs: Inputs
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Shard:
    """One client's examples, or a test set: the ``pool`` that they lie in, their ``indices``, and perhaps a shift.

    ``augmentations`` are those of a client's training batches.
    """

    pool: Examples
    indices: Indices
    mechanism: Mechanism | None = None
    augmentations: tuple[Augmentation, ...] = ()

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it."""
        shape = self.pool.shape
        return shape if self.mechanism is None or isinstance(shape, dict) else self.mechanism.shape(shape)

    @property
    def form(self) -> Any:
        """The shape, where it is the same for all examples."""
        return self.pool.form["shape"] if self.mechanism is None else self.shape

    @property
    def labels(self) -> Indices:
        """The classes of this shard's examples, in its order."""
        return self.pool.labels[self.indices]

    @property
    def targets(self) -> Rows:
        """The targets of this shard's examples, in its order."""
        return self.pool.targets[self.indices]

    def batch(
        self, positions: Tensor | Array | slice, rng: np.random.Generator | None = None, padding: int = 0
    ) -> Batch:
        """Inputs and targets at ``positions`` of this shard. Integers stay integers.

        Rows that differ in length become as long as the longest of the batch: inputs with ``PAD``, targets with the
        task's ``padding``.

        Images become (x/255 - 0.5) / 0.5, in channels_last memory. The constants are fixed (PFLlib's convention): in a
        federation nobody knows the mean and deviation of the pooled data. With an ``rng`` the augmentations are
        applied, without one they are not.
        """
        inputs, targets = self.arrays(positions, rng)
        return Batch(per_input(_tensor, inputs), torch.from_numpy(_padded(targets, padding)))

    def arrays(self, positions: Tensor | Array | slice, rng: np.random.Generator | None = None) -> tuple[Arrays, Rows]:
        """Inputs as the data set has them, but shifted and augmented, and targets at ``positions`` of this shard."""
        indices = self.indices[positions if isinstance(positions, slice) else np.asarray(positions)]
        # Indexing with an array copies, so torch never sees the read-only memory of a mapped file.
        inputs, targets = taken(self.pool.inputs, indices), self.pool.targets[indices]
        if self.mechanism is not None and isinstance(inputs, np.ndarray):
            inputs = np.ascontiguousarray(self.mechanism(inputs, cast(Indices, targets), indices))
        if self.augmentations and rng is not None:
            inputs = augmented(inputs, self.augmentations, rng)
        return inputs, targets

    def class_counts(self) -> Indices:
        """How many examples of each class there are; where there are no classes, how many examples."""
        if not self.pool.classes:
            return np.array([len(self)])
        return np.bincount(self.labels, minlength=len(self.pool.classes))


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their training shards, and a test set.

    ``client_tests`` holds one test shard per client where the partition has a ``test_share`` (personalised methods need
    them); the ``test`` set is then all of them together, unless the partition holds one out. No client is empty, and no
    example belongs to two clients. Where the data were a table, ``encoding`` is how it became inputs; ``notes`` are
    lines for the user.
    """

    name: str
    clients: tuple[Shard, ...]
    client_names: tuple[str, ...]
    test: Shard
    client_tests: tuple[Shard, ...] | None = None
    encoding: Encoding | None = None
    notes: tuple[str, ...] = ()

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
        forms = {str(shard.form) for shard in (*self.clients, *tests, self.test)}
        if len(forms) > 1:
            raise PartitionError(f"expected examples of one shape, found {', '.join(sorted(forms))}")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.test.pool.classes

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return self.test.pool.outputs

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it; of rows that differ in length, the longest one's."""
        shapes: list[Any] = [shard.shape for shard in (*self.clients, *(self.client_tests or ()), self.test)]
        if isinstance(shapes[0], dict):
            return {name: max(shape[name] for shape in shapes) for name in shapes[0]}
        longest: tuple[int, ...] = max(shapes)
        return longest

    def __len__(self) -> int:
        return len(self.clients)

    def counts(self) -> Indices:
        """Training examples, clients × classes; of all kinds together where there are no classes."""
        return np.stack([shard.class_counts() for shard in self.clients])

    def shifted(self, shift: Shift, seed: int = 0) -> Federation:
        """The same clients, each seeing its examples through a mechanism of its own, and a test set through another."""
        tests = self.client_tests or ()
        for examples in {id(shard.pool): shard.pool for shard in (*self.clients, *tests, self.test)}.values():
            shift.check(examples)
        population = Population(len(self), len(self.classes), derive(seed, "shift"))
        mechanisms = [shift.for_client(client, population) for client in range(len(self))]

        def seen(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
            return tuple(replace(shard, mechanism=own) for shard, own in zip(shards, mechanisms, strict=True))

        return replace(
            self,
            name=f"{self.name}/{shift.registered_name()}",
            clients=seen(self.clients),
            client_tests=None if self.client_tests is None else seen(self.client_tests),
            test=replace(self.test, mechanism=shift.for_test(population)),
        )

    def augmented(self, *augmentations: str | Mapping[str, Any] | Augmentation | Callable[..., Any]) -> Federation:
        """The same clients, whose training batches are changed at random; tests and what gradients see are not.

        Each is a registered name, a table with ``name``, a function ``(inputs, rng) -> inputs`` or its import path.

        >>> from fedpace.data import load
        >>> load("digits").partition("iid").augmented("flip", {"name": "crop", "padding": 1}).clients[0].augmentations
        (Flip(p=0.5), Crop(padding=1, border='zero'))
        """
        chosen = parse_augmentations(augmentations)
        for augmentation in chosen:
            for examples in {id(shard.pool): shard.pool for shard in self.clients}.values():
                augmentation.check(examples)
        clients = tuple(replace(shard, augmentations=chosen) for shard in self.clients)
        clients[0].batch(slice(2), numpy_stream(0, "trial"))  # before training, where a mistake would be each client's
        return replace(self, clients=clients)

    def fingerprint(self) -> str:
        """A digest of who holds which labels: other data, another deal or another shift of them have another one."""
        digest = blake2b(repr((self.classes, self.shape, self.client_names)).encode(), digest_size=16)
        for shard in (*self.clients, *(self.client_tests or ()), self.test):
            digest.update(len(shard).to_bytes(8, "little"))
            digest.update(shard.indices.tobytes() + shard.targets.tobytes())
            first = taken(shard.pool.inputs, shard.indices[:1])
            for rows in first.values() if isinstance(first, Mapping) else [first]:
                digest.update(rows.tobytes())
            if shard.mechanism is not None:
                digest.update(repr(shard.mechanism).encode())
            if shard.augmentations:
                digest.update(repr(shard.augmentations).encode())
        if self.encoding is not None:
            digest.update(json.dumps(self.encoding.to_json()).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        examples = sum(map(len, self.clients))
        return (
            f"Federation('{self.name}': {len(self)} clients with {examples} examples, {len(self.test)} test examples, "
            f"{kind_of_targets(self.test.pool)}, shape {self.shape})"
        )

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{for_html(cell)}</th>" for cell in ("client", *(self.classes or ("examples",))))
        rows = (
            f"<tr><th>{for_html(name)}</th>{''.join(f'<td>{count}</td>' for count in counts)}</tr>"
            for name, counts in zip(self.client_names, self.counts(), strict=True)
        )
        return f"<p>{for_html(repr(self))}</p><table><tr>{header}</tr>{''.join(rows)}</table>"


def kind_of_targets(examples: Examples) -> str:
    """What is to be learnt, in words."""
    if examples.classes:
        return f"{len(examples.classes)} classes"
    return f"{len(examples.vocabulary)} tokens" if examples.vocabulary else f"{examples.outputs} number(s) to predict"


def _check_disjoint(shards: tuple[Shard, ...]) -> None:
    """Indices must exist, and within one pool no index may be used twice."""
    by_pool: dict[int, list[Shard]] = defaultdict(list)
    for shard in shards:
        by_pool[id(shard.pool)].append(shard)
    for group in by_pool.values():
        size = len(group[0].pool)
        indices = np.concatenate([shard.indices for shard in group])
        if indices.min() < 0 or indices.max() >= size:
            raise PartitionError(
                f"indices out of range: expected 0 to {size - 1}, found {indices.min()} to {indices.max()}"
            )
        times = np.bincount(indices)
        if times.max() > 1:
            raise PartitionError(f"example {times.argmax()} is used {times.max()} times; each belongs to one client")


def _padded(rows: Rows, value: int) -> Array:
    return rows.padded(value) if isinstance(rows, Ragged) else rows


def _tensor(rows: Rows) -> Tensor:
    tensor = torch.from_numpy(_padded(rows, PAD))
    if tensor.dtype == torch.uint8:
        tensor = tensor.float().mul_(2 / 255).sub_(1).permute(0, 3, 1, 2)
    return tensor
