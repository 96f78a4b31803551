"""Augmentations that users write as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import model_serializer

from fedpace.core import DataError, import_path, parse
from fedpace.data.augmentations._augmentation import Augmentation, augmentations
from fedpace.data.examples import Examples


class Own(Augmentation):
    """A function ``(inputs, rng) -> inputs`` of the user's, for a batch of any inputs; config holds its import path."""

    function: Callable[[Any, np.random.Generator], Any]

    @property
    def label(self) -> str:
        """The import path, for what has one."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{named.__module__}:{named.__qualname__}"

    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """What the function says."""
        try:
            return self.function(inputs, rng)
        except Exception as error:  # whatever the user's function does wrong
            raise DataError(f"augmentation '{self.label}': failed with {type(error).__name__}: {error}") from error

    def check(self, examples: Examples) -> None:
        """The function knows what it can be applied to."""

    @model_serializer(mode="plain")
    def _as_path(self) -> str:
        return self.label

    def __repr__(self) -> str:  # an address in memory would tell equal federations apart
        return f"Own({self.label})"


def parse_augmentation(value: Any) -> Augmentation:
    """An augmentation from its name, a table with ``name``, the import path of a class or a function, or a function.

    >>> parse_augmentation({"name": "flip", "p": 0.25})
    Flip(p=0.25)
    """
    found = import_path(value, augmentations.kind) if isinstance(value, str) and ":" in value else value
    if callable(found) and not isinstance(found, Augmentation | type):
        return Own(function=found)
    return parse(augmentations, value)


def parse_augmentations(value: Any) -> tuple[Augmentation, ...]:
    """Augmentations from a list of them, or from a single one.

    >>> parse_augmentations(["crop", "flip"])
    (Crop(padding=4, border='zero'), Flip(p=0.5))
    """
    single = isinstance(value, str | Mapping) or callable(value)
    return tuple(map(parse_augmentation, [value] if single else value))
