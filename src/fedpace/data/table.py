"""What the columns of a table mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpace.core import DataError, did_you_mean
from fedpace.data.ragged import Ragged

Unseen = Literal["missing", "refuse"]
"""What becomes of a category's value that no training client has: it counts as missing, or it is an error."""


@dataclass(frozen=True)
class Schema:
    """Makes inputs by name a table: which of its columns are ``categories``, and the values that these have.

    All columns are n × 1. Categories are int64 codes of their values, and -1 is missing; all others are float32
    numbers, and NaN is missing. A table is encoded as numbers when it is dealt (:class:`fedpace.data.Encoding`).

    >>> from fedpace.data import Data, Examples
    >>> age = np.array([[40], [50], [np.nan], [60], [45]], np.float32)
    >>> sex = np.array([[0], [1], [0], [-1], [1]])
    >>> schema = Schema({"sex": ("female", "male")})
    >>> patients = Examples({"age": age, "sex": sex}, np.array([0, 1, 1, 0, 1]), ("healthy", "ill"), schema=schema)
    >>> Data("patients", patients).partition("iid", clients=1, test_share=0.2, seed=2).encoding.columns
    ('age', 'age missing', 'sex=female', 'sex=male', 'sex missing')
    """

    categories: Mapping[str, tuple[str, ...]]
    unseen: Unseen = "missing"

    def check(self, inputs: Mapping[str, NDArray[Any] | Ragged]) -> None:
        """Fail if the columns are not as this schema says."""
        for name in self.categories:
            if name not in inputs:
                raise DataError(f"table: unknown column '{name}'; {did_you_mean(name, inputs)}")
        for name, column in inputs.items():
            kind = np.dtype(np.int64 if name in self.categories else np.float32)
            if isinstance(column, Ragged) or column.dtype != kind or column.shape[1:] != (1,):
                raise DataError(
                    f"column '{name}': expected {kind} of shape n × 1, found {column.dtype} of shape {column.shape}"
                )
            if name not in self.categories:
                if np.isinf(column).any():
                    raise DataError(f"column '{name}': expected numbers, found infinity; leave these cells empty")
            elif len(column) and not -1 <= column.min() <= column.max() < len(self.categories[name]):
                raise DataError(
                    f"column '{name}': expected codes from -1 to {len(self.categories[name]) - 1}, "
                    f"found {column.min()} to {column.max()}"
                )
