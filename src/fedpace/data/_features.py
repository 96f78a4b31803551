"""What one column of a table becomes: one column of numbers, or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpace.core import Settings
from fedpace.data.examples import Array, Indices


class Number(Settings):
    """A number less the ``mean``, divided by the ``deviation``; 0 if it is missing, or the same for all clients.

    If numbers are ``missing`` among training examples, a second column says where.
    """

    name: str
    mean: float
    deviation: float
    missing: bool

    @classmethod
    def fit(cls, name: str, values: Array) -> Number:
        """As the training examples have them."""
        present = values[~np.isnan(values)].astype(np.float64)
        differ = len(present) > 0 and present.min() < present.max()  # rounding gives equal numbers a deviation too
        mean = float(present.mean()) if len(present) else 0.0
        deviation = np.sqrt(np.square(present - mean).sum() / len(values)) if differ else 0.0
        return cls(name=name, mean=mean, deviation=float(deviation), missing=len(present) < len(values))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        return (self.name, f"{self.name} missing") if self.missing else (self.name,)

    def write(self, out: Array, values: Array) -> None:
        """Fill in the columns ``out``, which are 0."""
        if self.deviation:
            out[:, 0] = np.nan_to_num((values.astype(np.float64) - self.mean) / self.deviation)
        if self.missing:
            out[:, 1] = np.isnan(values)


class Category(Settings):
    """A column of 0 and 1 for each of the ``values`` that training clients have, and perhaps one for ``missing``."""

    name: str
    values: tuple[str, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, codes: Indices, names: Sequence[str]) -> Category:
        """As the training examples have them."""
        missing, *counts = np.bincount(codes + 1, minlength=len(names) + 1)
        present = tuple(value for value, count in zip(names, counts, strict=True) if count)
        return cls(name=name, values=present, missing=missing > 0)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        values = tuple(f"{self.name}={value}" for value in self.values)
        return (*values, f"{self.name} missing") if self.missing else values

    def write(self, out: Array, codes: Indices, names: Sequence[str]) -> None:
        """Fill in the columns ``out``, which are 0."""
        columns = {value: column for column, value in enumerate(self.values)}
        missing = len(self.values) if self.missing else -1
        column = np.array([*(columns.get(name, -1) for name in names), missing])[codes]
        rows = np.flatnonzero(column >= 0)
        out[rows, column[rows]] = 1

    def unseen(self, codes: Indices, names: Sequence[str]) -> Array:
        """Which examples have a value that no training client has."""
        known = set(self.values)
        found: Array = np.array([*(name not in known for name in names), False])[codes]
        return found
