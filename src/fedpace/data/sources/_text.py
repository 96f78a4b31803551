"""What sources of text have in common: texts cut into windows."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from pydantic import Field

from fedpace.core import DataError
from fedpace.data.data import Data
from fedpace.data.examples import Column, Examples, Indices
from fedpace.data.ragged import Ragged
from fedpace.data.sources._source import Source
from fedpace.data.tokenizers import Characters, Pretrained, Tokenizer

CHARACTERS = "characters"


class TextSource(Source, ABC):
    """A source of texts. An example is a window of one text, and what to predict is the next token at every place.

    A window has ``length`` tokens, the last one of a text what is left. ``tokenizer`` is "characters", or the path to a
    JSON file of the library ``tokenizers``.
    """

    tokenizer: str | Path = CHARACTERS
    length: int = Field(80, ge=2)

    def windows(self, name: str, texts: Sequence[str], columns: Mapping[str, Column]) -> Data:
        """The texts cut into windows; ``columns`` say where each text comes from. Texts of one token teach nothing."""
        tokenizer: Tokenizer = Characters.of(texts) if self.tokenizer == CHARACTERS else Pretrained(self.tokenizer)
        tokens = [tokenizer.encode(text) for text in texts]
        longest = max(map(len, tokens), default=0)
        if longest < 2:
            raise DataError(f"data '{name}': expected a text of 2 tokens or more, found {longest or 'an empty one'}")
        inputs, targets, owners = cut(tokens, self.length)
        owned = {key: Column(column.values[owners], column.names) for key, column in columns.items()}
        return Data(name, Examples(inputs, targets, columns=owned, vocabulary=tokenizer.vocabulary))


def cut(texts: Sequence[Indices], length: int) -> tuple[Ragged, Ragged, Indices]:
    """Inputs and targets, which are the tokens after them, cut after ``length`` tokens; and the text of each window.

    Every token but a text's first is predicted once.

    >>> inputs, targets, texts = cut([np.array([1, 2, 3, 4]), np.array([7, 8])], 2)
    >>> inputs.padded(0).tolist(), targets.padded(0).tolist(), texts.tolist()
    ([[1, 2], [3, 0], [7, 0]], [[2, 3], [4, 0], [8, 0]], [0, 0, 1])
    """
    ends = list(accumulate((max(len(text) - 1, 0) for text in texts), initial=0))
    starts = [np.arange(start, end, length) for start, end in pairwise(ends)]
    offsets = np.concatenate([*starts, ends[-1:]])
    inputs, targets = (
        Ragged(np.concatenate([text[part] for text in texts]), offsets) for part in (slice(-1), slice(1, None))
    )
    return inputs, targets, np.repeat(np.arange(len(texts)), [len(own) for own in starts])
