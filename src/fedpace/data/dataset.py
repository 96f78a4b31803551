"""Labelled examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpace.core import DataError
from fedpace.data._names import listed

Array = NDArray[Any]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled examples, resident or memory-mapped.

    ``inputs`` are uint8 images (n × height × width × channels), or float32 arrays (n × anything) that are taken as they
    are. ``labels`` index ``classes``; ``domains``, where the data have them, index ``domain_names``.

    >>> Dataset(np.zeros((2, 8, 8, 1), np.uint8), np.array([0, 1]), ("cat", "dog")).shape
    (1, 8, 8)
    """

    inputs: Array
    labels: Indices
    classes: tuple[str, ...]
    domains: Indices | None = None
    domain_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        images = self.inputs.dtype == np.uint8 and self.inputs.ndim == 4
        floats = self.inputs.dtype == np.float32 and self.inputs.ndim > 1
        if not (images or floats):
            raise DataError(
                "inputs: expected uint8 images (n × height × width × channels) or float32 arrays (n × ...), "
                f"found {self.inputs.dtype} of shape {self.inputs.shape}; convert them with astype or reshape"
            )
        self._check_indices("labels", self.labels, self.classes)
        if self.domains is not None:
            self._check_indices("domains", self.domains, self.domain_names)
        elif self.domain_names:
            raise DataError(f"domains: expected one per example ({len(self)}), found none beside their names")

    def _check_indices(self, what: str, values: Indices, names: tuple[str, ...]) -> None:
        if values.shape != self.inputs.shape[:1]:
            raise DataError(f"{what}: expected one per example ({len(self)}), found an array of shape {values.shape}")
        if len(values) and (values.min() < 0 or values.max() >= len(names)):
            raise DataError(
                f"{what} out of range: expected 0 to {len(names) - 1}, found {values.min()} to {values.max()}; "
                "number them from 0 and name all of them"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """One example's shape as a model sees it: channels first for images."""
        if self.inputs.dtype == np.uint8:
            height, width, channels = self.inputs.shape[1:]
            return channels, height, width
        return self.inputs.shape[1:]

    def by_class(self, rng: np.random.Generator) -> list[Indices]:
        """The indices of each class, shuffled."""
        return [rng.permutation(np.flatnonzero(self.labels == label)) for label in range(len(self.classes))]

    def take(self, indices: Indices) -> Dataset:
        """A copy of the examples at ``indices``."""
        domains = None if self.domains is None else self.domains[indices]
        return replace(self, inputs=self.inputs[indices], labels=self.labels[indices], domains=domains)

    def joined(self, other: Dataset) -> Dataset:
        """A copy of these examples followed by those of ``other``."""
        for what in ("classes", "domain_names", "shape"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise DataError(
                    f"train and test set cannot be merged: they differ in {what}: {listed(mine)} and {listed(theirs)}"
                )
        domains = None
        if self.domains is not None and other.domains is not None:  # both or neither, by their names
            domains = np.concatenate([self.domains, other.domains])
        inputs = np.concatenate([self.inputs, other.inputs])
        return replace(self, inputs=inputs, labels=np.concatenate([self.labels, other.labels]), domains=domains)
