"""Tokenizers of the library 'tokenizers'."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedpace.core import DataError, did_you_mean
from fedpace.data.examples import Array, Indices
from fedpace.data.tokenizers._tokenizer import Tokenizer


class Pretrained(Tokenizer):
    """Any tokenizer of the library ``tokenizers``: the object, or the path to its JSON file.

    Texts are encoded whole, without special tokens: a truncation or padding that the file asks for is left out. Numbers
    that the vocabulary leaves free have an empty name.
    """

    def __init__(self, tokenizer: str | Path | Any) -> None:
        library = _library()
        if isinstance(tokenizer, str | Path):
            content, where = _content(Path(tokenizer)), str(tokenizer)
        else:
            content, where = tokenizer.to_str(), "the tokenizer"
        try:
            self._tokenizer = library.Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing narrower
            raise DataError(f"{where}: expected a tokenizer's JSON file, but it cannot be read ({error})") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = self._tokenizer.get_vocab()
        names = {number: name for name, number in numbers.items()}
        self.vocabulary = tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))

    def encode(self, text: str) -> Indices:
        """The numbers of a text."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, tokens: Array) -> str:
        """The text, as the library puts it together again."""
        tokens = np.asarray(tokens)
        text: str = self._tokenizer.decode(tokens[tokens >= 0].tolist(), skip_special_tokens=False)
        return text


def _library() -> Any:
    try:
        return import_module("tokenizers")
    except ImportError:
        raise DataError("a tokenizer from a file needs the library 'tokenizers': pip install 'fedpace[text]'") from None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise DataError(
            f"tokenizer '{path}': expected a tokenizer's JSON file, but it cannot be read ({reason}); "
            f"{did_you_mean(str(path), ['characters'])}"
        ) from None
