"""MNIST."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("mnist")
class Mnist(KnownImages):
    """70,000 grey handwritten digits of 28 × 28 pixels (LeCun et al., 1998).

    Parameters: ``size`` to resize to.
    """

    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    repository: ClassVar[str] = "ylecun/mnist"
