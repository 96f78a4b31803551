"""What a shift is: a mechanism for each client, and one that no client has for the test set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedpace.core import DataError, Named, Registry
from fedpace.data.examples import Array, Examples, Indices, kind_of_inputs


@dataclass(frozen=True)
class Population:
    """What a shift knows of the federation; randomness comes from ``seed`` and an example's index alone."""

    clients: int
    classes: int
    seed: int


class Mechanism(ABC):
    """How one client's images look: a function of an image, its label and its index, so the same in every round.

    Subclasses are frozen dataclasses: what ``repr`` shows enters the fingerprint of a federation.
    """

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One example's shape (channels first) after the shift, given that before; the same unless overridden."""
        return shape

    @abstractmethod
    def __call__(self, images: Array, labels: Indices, indices: Indices) -> Array:
        """New uint8 images (n × height × width × channels) for those of a batch; ``indices`` are into the data set."""


class Shift(Named, ABC):
    """A mechanism for each client. It is applied to batches: there is never a shifted copy of the data.

    ``channels`` are those that an image may have.
    """

    channels: ClassVar[tuple[int, ...]] = (1, 3)

    @abstractmethod
    def for_client(self, client: int, population: Population) -> Mechanism:
        """The mechanism of a client's training and test examples."""

    @abstractmethod
    def for_test(self, population: Population) -> Mechanism:
        """The mechanism of the global test set, which no client has seen."""

    def check(self, examples: Examples) -> None:
        """Fail before training if the shift cannot be applied to these data."""
        expected = " or ".join(map(str, self.channels))
        inputs = examples.inputs
        if isinstance(inputs, Mapping) or inputs.dtype != np.uint8:
            found = kind_of_inputs(inputs)
        elif inputs.shape[3] not in self.channels:
            found = f"{inputs.shape[3]}"
        else:
            return
        raise DataError(
            f"shift '{self.registered_name()}': expected uint8 images with {expected} channel(s), found {found}; "
            "choose other data or no shift"
        )


shifts: Registry[Shift] = Registry("shift", Shift)
