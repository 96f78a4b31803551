"""Fashion-MNIST."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("fashion_mnist")
class FashionMnist(KnownImages):
    """70,000 grey pictures of garments, 28 × 28 pixels, 10 classes (Xiao et al., 2017).

    Parameters: ``size`` to resize to.
    """

    classes: ClassVar[tuple[str, ...]] = (
        "t-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    )
    repository: ClassVar[str] = "zalando-datasets/fashion_mnist"
