"""Flowers102."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("flowers102")
class Flowers102(KnownImages):
    """8,189 RGB photographs of flowers, 102 classes of 40 to 258 (Nilsback and Zisserman, 2008).

    Photographs differ in size, so they are resized. Copies differ in their splits, and partitions with a ``test_share``
    merge them; a validation set beside a test set is not read. Classes have numbers instead of names, because copies
    disagree on their order.

    Parameters: ``size`` to resize to.
    """

    size: int | None = Field(64, ge=1)  # ConFREE's and PFLlib's

    classes: ClassVar[tuple[str, ...]] = tuple(map(str, range(102)))
    repository: ClassVar[str] = "nelorth/oxford-flowers"
