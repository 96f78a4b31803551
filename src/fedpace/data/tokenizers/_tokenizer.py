"""What a tokenizer is: text as numbers and back."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedpace.data.examples import Array, Indices


class Tokenizer(ABC):
    """Text as numbers and back; ``vocabulary`` names each number, and belongs to the data set."""

    vocabulary: tuple[str, ...]

    @abstractmethod
    def encode(self, text: str) -> Indices:
        """The numbers of a text."""

    @abstractmethod
    def decode(self, tokens: Array) -> str:
        """The text of some numbers. Those below 0, which stand where targets do not count, say nothing."""
