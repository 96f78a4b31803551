"""PACS."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources


@sources.register("pacs")
class Pacs(KnownImages):
    """9,991 RGB pictures of 7 classes in four domains: art_painting, cartoon, photo, sketch (Li et al., 2017).

    There is no test set: partition it with ``leave_one_domain_out``.

    Parameters: ``size`` to resize to.
    """

    size: int | None = Field(64, ge=1)

    classes: ClassVar[tuple[str, ...]] = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    repository: ClassVar[str] = "flwrlabs/pacs"
