"""Handwritten digits that come with scikit-learn: real data without a download."""

from __future__ import annotations

from importlib.metadata import distribution

import numpy as np

from fedpace.data.data import Data, hold_out
from fedpace.data.examples import Array, Examples, Indices
from fedpace.data.sources._images import resized
from fedpace.data.sources._source import ImageSource, sources

CLASSES = tuple("0123456789")


@sources.register("digits")
class Digits(ImageSource):
    """1,797 grey 8 × 8 digits (UCI optical recognition set), a fifth of each class held out as the test set.

    Parameters: ``size`` to resize to.
    """

    def load(self) -> Data:
        """Read and split."""
        images, labels = grey_digits()
        return Data("digits", *hold_out(Examples(resized(images, self.size), labels, CLASSES), "digits"))


def grey_digits() -> tuple[Array, Indices]:
    """All digits as uint8, n × 8 × 8 × 1, with their labels; scikit-learn stores them as 0 to 16."""
    # Without scikit-learn itself: its import takes half as long as torch's.
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(file), delimiter=",")
    images = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8)
    return images.reshape(-1, 8, 8, 1), rows[:, -1].astype(np.int64)
