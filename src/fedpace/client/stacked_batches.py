"""The batches of several clients side by side: those that each would see alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedpace.client._work import Context
from fedpace.client.batches import Batches
from fedpace.core import Inputs, devices, numpy_stream
from fedpace.data import PAD, Batch, Examples, Shard

Indices = NDArray[np.int64]
Sizes = list[tuple[slice, int]]
"""Which rows have batches of which size."""


class StackedBatch(NamedTuple):
    """One batch of each of the first rows: rows × examples × anything.

    ``sizes`` are the true sizes of the batches; those that have fewer examples than others are filled up.
    """

    inputs: Inputs
    targets: Tensor
    sizes: Sizes


class StackedBatches:
    """Batches of clients in rows; ``positions`` are those of their examples, batches × examples of a batch.

    Who comes first has no fewer batches than others, and none that are smaller: rows that still have one are the first
    ones. Where all clients' examples are taken as they are from one pool, a batch of all is one gather. Where they are
    shifted, or augmented with the ``rngs``, each client makes its own.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        positions: Sequence[Indices],
        context: Context,
        rngs: Sequence[np.random.Generator | None] = (),
    ) -> None:
        self.counts = [len(own) for own in positions]
        self._sizes = [own.shape[1] for own in positions]
        self._shards, self._positions, self._rngs = shards, positions, rngs or [None] * len(shards)
        self._padding, self._device = context.task.padding, context.model.device
        self._pool = None if rngs else common_pool(shards)
        self._places = self._in_the_pool() if self._pool is not None else np.empty(0, np.int64)

    @classmethod
    def of(cls, settings: Batches, shards: Sequence[Shard], contexts: Sequence[Context]) -> StackedBatches:
        """Those that each client would see, as they are."""
        return cls(shards, _orders(settings, shards, contexts), contexts[0])

    @classmethod
    def for_training(
        cls, settings: Batches, shards: Sequence[Shard], contexts: Sequence[Context], *, epochs: int | None = None
    ) -> StackedBatches:
        """Those for local steps: with the data's augmentations, whose randomness each client's seed fixes."""
        augmented = any(shard.augmentations for shard in shards)
        rngs = [numpy_stream(context.seed, "augmentation") for context in contexts] if augmented else []
        return cls(shards, _orders(settings, shards, contexts, epochs), contexts[0], rngs)

    def __iter__(self) -> Iterator[StackedBatch]:
        for inputs, targets in devices.carried(self._on_host(), self._device):
            yield StackedBatch(inputs, targets, list(_runs(self._sizes[: len(targets)])))

    def _on_host(self) -> Iterator[Batch]:
        counts = np.array(self.counts)
        make = self._made if self._pool is None else self._gathered
        return (make(number, int((counts > number).sum())) for number in range(max(self.counts)))

    def _in_the_pool(self) -> Indices:
        """Where in the pool the examples of each row's batches lie: rows × batches × examples."""
        found = np.zeros((len(self._shards), max(self.counts), self._sizes[0]), np.int64)
        for row, shard, positions in zip(found, self._shards, self._positions, strict=True):
            batches, size = positions.shape
            row[:batches, :size] = shard.indices[positions]
            row[:batches, size:] = row[:batches, :1]
        return found

    def _gathered(self, number: int, rows: int) -> Batch:
        assert self._pool is not None
        chosen = Shard(self._pool, self._places[:rows, number].ravel())
        batch = chosen.batch(slice(None), padding=self._padding)
        # vmap knows no channels_last
        return _each(batch, lambda tensor: tensor.view(rows, -1, *tensor.shape[1:]).contiguous())

    def _made(self, number: int, rows: int) -> Batch:
        clients = zip(self._shards[:rows], self._positions[:rows], self._rngs[:rows], strict=True)
        batches = [shard.batch(own[number], rng, self._padding) for shard, own, rng in clients]
        targets = _filled([batch.targets for batch in batches], self._padding)
        first = batches[0].inputs
        if not isinstance(first, Mapping):
            return Batch(_filled([cast(Tensor, batch.inputs) for batch in batches], PAD), targets)
        named = [cast(Mapping[str, Tensor], batch.inputs) for batch in batches]
        return Batch({name: _filled([inputs[name] for inputs in named], PAD) for name in first}, targets)


def common_pool(shards: Sequence[Shard]) -> Examples | None:
    """The pool from which all shards take their examples as they are, if there is one."""
    first = shards[0].pool
    return first if all(shard.pool is first and shard.mechanism is None for shard in shards) else None


def _orders(
    settings: Batches, shards: Sequence[Shard], contexts: Sequence[Context], epochs: int | None = None
) -> list[Indices]:
    clients = zip(shards, contexts, strict=True)
    return [np.concatenate(list(settings.orders(shard, own.seed, epochs=epochs))) for shard, own in clients]


def _runs(sizes: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Neighbouring rows with batches of the same size.

    >>> list(_runs([10, 10, 7]))
    [(slice(0, 2, None), 10), (slice(2, 3, None), 7)]
    """
    start = 0
    for size, rows in groupby(sizes):
        yield slice(start, start := start + len(list(rows))), size


def _each(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    inputs = batch.inputs
    if isinstance(inputs, Mapping):
        return Batch({name: change(tensor) for name, tensor in inputs.items()}, change(batch.targets))
    return Batch(change(inputs), change(batch.targets))


def _filled(parts: Sequence[Tensor], value: int) -> Tensor:
    """Tensors in rows: shorter ones are padded with ``value``, those of fewer examples filled up with their first."""
    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    whole = parts[0].new_full((len(parts), *shape), value)
    for row, part in zip(whole, parts, strict=True):
        row[tuple(map(slice, part.shape))] = part
        row[len(part) :] = row[:1]
    return whole
