"""Tiny ImageNet."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("tiny_imagenet")
class TinyImagenet(KnownImages):
    """110,000 RGB photographs of 64 × 64 pixels, 200 classes (Le and Yang, 2015).

    The test set is the hub's split "valid": labels of the original test set were never published. Classes have
    numbers instead of names, because copies disagree on their WordNet ids.

    Parameters: ``size`` to resize to.
    """

    classes: ClassVar[tuple[str, ...]] = tuple(map(str, range(200)))
    repository: ClassVar[str] = "zh-plus/tiny-imagenet"
