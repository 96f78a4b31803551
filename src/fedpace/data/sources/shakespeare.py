"""Shakespeare by role."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from pydantic import Field

from fedpace.core import DataError
from fedpace.data.data import Data
from fedpace.data.examples import Column
from fedpace.data.sources._known import known_file
from fedpace.data.sources._source import sources
from fedpace.data.sources._text import TextSource
from fedpace.data.sources.text import read_text

FILE = "input.txt"


@sources.register("shakespeare")
class Shakespeare(TextSource):
    """Plays of Shakespeare, 1.1 MB (the file of Karpathy's char-rnn, 2015); the column ``role`` says who speaks.

    All that a role says, in all plays, is one text, of which a window is an example. 99 roles speak at least 2,000
    characters: ``partition("by", column="role")`` makes them clients. It is read from ``shakespeare/input.txt`` under
    ``$FEDPACE_DATA``, ``./data`` or the user cache.

    Parameters: ``length`` of a window in tokens; ``least`` characters of a role, of those with fewer nothing is used;
    ``tokenizer``: "characters" or a JSON file of the library ``tokenizers``.
    """

    least: int = Field(2_000, ge=2)

    def load(self) -> Data:
        """Find and read the file."""
        file = known_file(self.name, FILE)
        texts = {role: text for role, text in sorted(_texts(file).items()) if len(text) >= self.least}
        if not texts:
            raise DataError(f"{file}: expected a role with {self.least} characters or more, found none; set least")
        return self.windows(self.name, list(texts.values()), {"role": Column(np.arange(len(texts)), tuple(texts))})


def _texts(file: Path) -> dict[str, str]:
    """What each role says. Blocks have a name and a colon and then lines, and stand between empty lines."""
    said = defaultdict(list)
    for block in re.split(r"\n\s*\n", read_text(file).strip()):
        role, _, lines = block.partition("\n")
        if not role.endswith(":"):
            raise DataError(f"{file}: expected blocks that start with a role's name and a colon, found '{role[:40]}'")
        if lines:  # some ghosts are named, but what they say is not in the file
            said[" ".join(role[:-1].split())].append(lines)  # one name is written with two spaces here and there
    return {role: "\n".join(lines) for role, lines in said.items()}
