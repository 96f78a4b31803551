"""What an augmentation is: a random change of a training batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpace.core import DataError, Named, Registry
from fedpace.data.examples import Arrays, Examples, kind_of_inputs


class Augmentation(Named, ABC):
    """Changes the inputs of a training batch at random, and keeps their shape and type.

    Local training applies it, with randomness from the client's seed of the round. Evaluation, probes and gradients
    take examples as they are. Where there is a shift, the augmentation is given what the client sees.
    """

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.registered_name()

    @abstractmethod
    def __call__(self, inputs: Any, rng: np.random.Generator) -> Any:
        """New images for those of a batch (n × height × width × channels, uint8), which must not be written to."""

    def check(self, examples: Examples) -> None:
        """Fail before training if the augmentation cannot be applied to these data: usually, if they are no images."""
        found = kind_of_inputs(examples.inputs)
        if found != "uint8 images":
            raise DataError(
                f"augmentation '{self.label}': expected uint8 images, found {found}; choose other data or leave it out"
            )


augmentations: Registry[Augmentation] = Registry("augmentation", Augmentation)


def augmented(inputs: Arrays, chosen: Sequence[Augmentation], rng: np.random.Generator) -> Arrays:
    """What the augmentations make of a batch, one after another; one that changes its shape or type is an error."""
    for augmentation in chosen:
        expected, inputs = _form(inputs), augmentation(inputs, rng)
        if (found := _form(inputs)) != expected:
            raise DataError(f"augmentation '{augmentation.label}': expected {expected} as it was given, found {found}")
    if isinstance(inputs, Mapping):
        return {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    return np.ascontiguousarray(inputs)  # torch takes no negative strides, which a flip by slices has


def _form(inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name}: {_form(array)}" for name, array in inputs.items())
    if not isinstance(inputs, np.ndarray):
        return type(inputs).__name__
    return f"{inputs.dtype} of shape {inputs.shape}"
