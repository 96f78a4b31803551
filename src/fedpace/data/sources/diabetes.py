"""A regression that comes with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np

from fedpace.data.data import Data
from fedpace.data.examples import Column, Examples
from fedpace.data.sources._source import Source, sources


@sources.register("diabetes")
class Diabetes(Source):
    """442 patients, ten features, and how far their diabetes has progressed a year later (Efron et al., 2004).

    Targets are the progression (25 to 346) divided by 100. The column ``sex`` has two values, the column ``age`` four
    groups of about equal size. Parameters: none.
    """

    def load(self) -> Data:
        """Read; features are scaled as scikit-learn ships them, to a variance of 1."""
        from sklearn.datasets import load_diabetes  # here, because it is slow to import

        bunch = load_diabetes()
        features = bunch.data * np.sqrt(len(bunch.data))
        age, sex = (features[:, bunch.feature_names.index(name)] for name in ("age", "sex"))
        groups = np.searchsorted(np.quantile(age, [0.25, 0.5, 0.75]), age)
        columns = {
            "age": Column(groups.astype(np.int64), ("youngest", "younger", "older", "oldest")),
            "sex": Column((sex > 0).astype(np.int64), ("first", "second")),
        }
        targets = (bunch.target / 100).astype(np.float32)
        return Data("diabetes", Examples(features.astype(np.float32), targets, columns=columns))
