"""What a source is: a named origin of data."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field

from fedpace.core import Named, Registry
from fedpace.data.data import Data

LARGEST_SIDE = 4096
"""Of an image that is resized; no model takes more."""


class Source(Named, ABC):
    """Where data come from; its fields say which and in what form."""

    @abstractmethod
    def load(self) -> Data:
        """Read the data."""


class ImageSource(Source, ABC):
    """A source of images, resized to ``size`` × ``size`` (bilinear) unless it is None."""

    size: int | None = Field(None, ge=1, le=LARGEST_SIDE)


sources: Registry[Source] = Registry("data source", Source)
