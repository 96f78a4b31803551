"""A token per character."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np

from fedpace.core import DataError
from fedpace.data._names import listed
from fedpace.data.examples import Array, Indices
from fedpace.data.tokenizers._tokenizer import Tokenizer

UNKNOWN = "�"  # Unicode's own sign for what cannot be shown
RESERVED = ("", UNKNOWN)  # the first one is padding (PAD), which says nothing


class Characters(Tokenizer):
    """A token per character. Token 0 is padding, token 1 (``�``) every character that the vocabulary does not have.

    A data set's ``vocabulary`` is all that it needs to encode and decode later.

    >>> characters = Characters.of(["hello"])
    >>> characters.vocabulary
    ('', '�', 'e', 'h', 'l', 'o')
    >>> characters.encode("hullo")
    array([3, 1, 4, 4, 5])
    >>> Characters(characters.vocabulary).decode(characters.encode("hullo"))
    'h�llo'
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        start, names = self.vocabulary[: len(RESERVED)], self.vocabulary[len(RESERVED) :]
        if start != RESERVED or not all(len(name) == 1 for name in names):
            raise DataError(
                f"a vocabulary of characters: expected {RESERVED}, then single characters, found "
                f"{listed([*map(repr, self.vocabulary)])}"
            )
        points = _code_points("".join(names))
        order = np.argsort(points)
        self._points = np.append(points[order], sys.maxunicode + 1)  # an end that no character reaches
        self._tokens = np.append(order + len(RESERVED), RESERVED.index(UNKNOWN))

    @classmethod
    def of(cls, texts: Iterable[str]) -> Characters:
        """All characters of some texts, in the order of their code points."""
        return cls((*RESERVED, *sorted(set().union(*texts) - {UNKNOWN})))

    def encode(self, text: str) -> Indices:
        """A token per character."""
        points = _code_points(text)
        places = np.searchsorted(self._points, points)
        return np.where(self._points[places] == points, self._tokens[places], RESERVED.index(UNKNOWN))

    def decode(self, tokens: Array) -> str:
        """The characters; padding says nothing."""
        tokens = np.asarray(tokens)
        return "".join(np.array(self.vocabulary, dtype=object)[tokens[tokens >= 0]])


def _code_points(text: str) -> Indices:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
