"""CIFAR-10."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("cifar10")
class Cifar10(KnownImages):
    """60,000 RGB photographs of 32 × 32 pixels, 10 classes (Krizhevsky, 2009).

    Parameters: ``size`` to resize to.
    """

    classes: ClassVar[tuple[str, ...]] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    repository: ClassVar[str] = "uoft-cs/cifar10"
