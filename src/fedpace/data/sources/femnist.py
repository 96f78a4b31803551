"""FEMNIST from the hub."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.data import Data
from fedpace.data.sources._characters import CHARACTERS, Characters, chosen
from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources
from fedpace.data.sources.parquet import read


@sources.register("femnist")
class Femnist(KnownImages):
    """814,277 grey handwritten characters of 28 × 28 pixels, each with its writer as its domain (Caldas et al., 2018).

    There is no test set. :class:`Leaf` reads the same data as LEAF's own scripts write them.

    Parameters: ``characters``: all 62 (digits, capitals, small letters), or the 10 digits (as GMA uses it); ``size``
    to resize to.
    """

    characters: Characters = "all"

    classes: ClassVar[tuple[str, ...]] = CHARACTERS
    repository: ClassVar[str] = "flwrlabs/femnist"

    def load(self) -> Data:
        """Read, and keep the characters that were chosen."""
        data = read(self.name, self.splits(), self.size, self.classes, label=("character",), domain="writer_id")
        return chosen(data, self.characters)
