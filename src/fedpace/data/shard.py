"""One client's examples, or a test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fedpace.core import Inputs
from fedpace.data.augmentations import Augmentation, augmented
from fedpace.data.examples import Array, Arrays, Examples, Indices, Rows, Shape, per_input, taken
from fedpace.data.ragged import PAD, Ragged
from fedpace.data.shifts import Mechanism


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


def _padded(rows: Rows, value: int) -> Array:
    return rows.padded(value) if isinstance(rows, Ragged) else rows


def _tensor(rows: Rows) -> Tensor:
    tensor = torch.from_numpy(_padded(rows, PAD))
    if tensor.dtype == torch.uint8:
        tensor = tensor.float().mul_(2 / 255).sub_(1).permute(0, 3, 1, 2)
    return tensor
