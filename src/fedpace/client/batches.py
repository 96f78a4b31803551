"""Which examples a client goes over, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedpace.client._work import Context
from fedpace.core import Inputs, Settings, devices, numpy_stream, torch_stream
from fedpace.data import Shard


class Batches(Settings):
    """``epochs`` passes over a client's examples in random batches of ``batch``, at most ``max_steps`` of them."""

    epochs: int = Field(2, ge=1)
    batch: int = Field(32, ge=1)
    max_steps: int | None = Field(100, ge=1)

    def training_batches(
        self, shard: Shard, context: Context, *, epochs: int | None = None, batch: int | None = None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """The batches for local steps: with the data's augmentations, whose randomness the context's seed fixes."""
        rng = numpy_stream(context.seed, "augmentation") if shard.augmentations else None
        return self.batches(shard, context, epochs=epochs, batch=batch, rng=rng)

    def batches(
        self,
        shard: Shard,
        context: Context,
        *,
        epochs: int | None = None,
        batch: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """At most ``max_steps`` batches of ``epochs`` passes, in an order that the context's seed fixes.

        The last incomplete batch of a pass is dropped, except where it is the only one: statistics of two or three
        images would unsettle BatchNorm, but a client with few images must still train. Examples are as they are, unless
        there is an ``rng`` to augment them with. Batches lie where the model does.
        """
        return devices.carried(self._on_host(shard, context, epochs, batch, rng), context.model.device)

    def _on_host(
        self, shard: Shard, context: Context, epochs: int | None, batch: int | None, rng: np.random.Generator | None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        for batches in self.orders(shard, context.seed, epochs=epochs, batch=batch):
            for positions in batches:
                yield shard.batch(positions, rng, padding=context.task.padding)

    def orders(
        self, shard: Shard, seed: int, *, epochs: int | None = None, batch: int | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """For each pass the positions of its examples in the shard, one row per batch."""
        generator = torch_stream(seed, "batches")
        size = min(batch or self.batch, len(shard))
        left = self.steps(shard, epochs=epochs, batch=batch)
        while left > 0:
            order = torch.randperm(len(shard), generator=generator).numpy()
            rows = order[: len(shard) // size * size].reshape(-1, size)[:left]
            yield rows
            left -= len(rows)

    def steps(self, shard: Shard, *, epochs: int | None = None, batch: int | None = None) -> int:
        """How many batches that will be."""
        steps = (epochs or self.epochs) * max(len(shard) // (batch or self.batch), 1)
        return min(steps, self.max_steps or steps)
