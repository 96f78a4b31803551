"""Texts that the user already has."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedpace.data.data import Data
from fedpace.data.examples import Column
from fedpace.data.sources._source import sources
from fedpace.data.sources._text import TextSource


@sources.register("texts")
class Texts(TextSource):
    """The given ``texts``, cut into windows; the column ``text`` numbers them, so that each may be a client's.

    Parameters: ``texts``; ``tokenizer``: "characters" or a JSON file of the library ``tokenizers``; ``length`` of a
    window in tokens.
    """

    texts: tuple[str, ...] = Field(min_length=1)

    def load(self) -> Data:
        """Cut into windows."""
        numbers = np.arange(len(self.texts))
        return self.windows("texts", self.texts, {"text": Column(numbers, tuple(map(str, numbers)))})
