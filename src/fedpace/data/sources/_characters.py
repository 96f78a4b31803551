"""What the two forms of FEMNIST have in common."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Literal

import numpy as np

from fedpace.core import DataError
from fedpace.data.data import Data
from fedpace.data.examples import Examples

CHARACTERS = tuple(digits + ascii_uppercase + ascii_lowercase)  # LEAF's numbers, and the hub's
Characters = Literal["all", "digits"]


def chosen(data: Data, characters: Characters) -> Data:
    """All characters, or the digits alone: 10 classes, and of the writers those who wrote any."""
    if characters == "all":
        return data
    splits = [_digits(split) for split in (data.train, data.test) if split is not None]
    if not len(splits[0]):
        raise DataError(f"data '{data.name}': expected digits (labels 0 to 9), found none; use characters = 'all'")
    writers = [split.domains for split in splits if split.domains is not None]
    kept = np.unique(np.concatenate(writers))
    names = tuple(data.train.domain_names[writer] for writer in kept)
    numbered = [np.searchsorted(kept, own) for own in writers]
    return Data(
        data.name,
        *(replace(split, domains=own, domain_names=names) for split, own in zip(splits, numbered, strict=True)),
    )


def _digits(examples: Examples) -> Examples:
    return replace(examples.take(np.flatnonzero(examples.labels < len(digits))), classes=tuple(digits))
