"""What a source is: a named origin of data."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field

from fedpace.core import Named, Registry
from fedpace.data.data import Data


class Source(Named, ABC):
    """Where data come from; its fields say which and in what form."""

    @abstractmethod
    def load(self) -> Data:
        """Read the data."""


class ImageSource(Source, ABC):
    """A source of images, resized to ``size`` × ``size`` (bilinear) unless it is None."""

    size: int | None = Field(None, ge=1)


sources: Registry[Source] = Registry("data source", Source)
