"""FedCMNIST: colour that follows the label, differently at each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpace.data.examples import Array, Indices
from fedpace.data.shifts._noise import noise
from fedpace.data.shifts._shift import Mechanism, Population, Shift, shifts

GAP = 0.1  # from the test offset to the nearest client's, where offsets are spaced


@dataclass(frozen=True)
class Colouring(Mechanism):
    """Hue label / classes + offset with probability q, otherwise any hue; the image is grey × that colour."""

    offset: float
    q: float
    saturation: float
    classes: int
    seed: int

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Grey becomes red, green and blue."""
        return 3, *shape[1:]

    def __call__(self, images: Array, labels: Indices, indices: Indices) -> Array:
        """Colour a batch of grey images."""
        colours = 1 - self.saturation * (1 - rgb(self.hues(labels, indices))).astype(np.float32)
        coloured = np.empty((*images.shape[:3], 3), np.uint8)
        for channel in range(3):  # four times as fast as one product, whose inner loop would have three steps
            coloured[..., channel] = np.rint(images[..., 0] * colours[:, channel, None, None])
        return coloured

    def hues(self, labels: Indices, indices: Indices) -> NDArray[np.float64]:
        """The hue of each example, from 0 to 1."""
        by_label: NDArray[np.float64] = (labels / self.classes + self.offset) % 1
        hues = noise(indices, self.seed, "hue")
        follows = noise(indices, self.seed, "follows") < self.q
        hues[follows] = by_label[follows]
        return hues


def rgb(hues: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fully saturated colours, n × 3.

    >>> rgb(np.array([0, 1 / 3, 1 / 2])).round().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    sixths = (6 * hues[:, None] + np.array([0, 4, 2])) % 6
    colours: NDArray[np.float64] = np.clip(np.abs(sixths - 3) - 1, 0, 1)
    return colours


@shifts.register("coloured")
class Coloured(Shift):
    """Each label has a colour, and each client other ones: a cue that misleads whoever trusts it (FedCMNIST of GMA).

    The paper does not say how it was made. Here client i of M colours an image of label y of C with the hue y/C + oᵢ,
    where oᵢ = (i + ½)/(M + 1) on the colour circle; the test set has the offset that is left, (M + ½)/(M + 1).

    Parameters: ``q``, the probability that a colour follows the label instead of chance; ``saturation``; ``test``, the
    test set's colours: those of an offset that no client has (unseen_map), of chance (random_colour) or none (grey);
    ``offsets``: dense as above, or spaced, where every client keeps a distance of 0.1 to the test offset (the same
    for up to 9 clients; with 500 the nearest dense one is 0.002 away, hardly unseen).
    """

    channels: ClassVar[tuple[int, ...]] = (1,)

    q: float = Field(0.9, ge=0, le=1)
    saturation: float = Field(1.0, ge=0, le=1)
    test: Literal["unseen_map", "random_colour", "grey"] = "unseen_map"
    offsets: Literal["dense", "spaced"] = "dense"

    def for_client(self, client: int, population: Population) -> Colouring:
        """Offsets lie evenly on the circle, in its part that is not too close to the test set's."""
        distance = 1 / (population.clients + 1)
        if self.offsets == "spaced":
            distance = max(distance, GAP)
        along = client / max(population.clients - 1, 1)
        offset = (_test_offset(population) + distance + (1 - 2 * distance) * along) % 1
        return Colouring(offset, self.q, self.saturation, population.classes, population.seed)

    def for_test(self, population: Population) -> Colouring:
        """The offset that no client has, chance, or no colour."""
        q = 0.0 if self.test == "random_colour" else self.q
        saturation = 0.0 if self.test == "grey" else self.saturation
        return Colouring(_test_offset(population), q, saturation, population.classes, population.seed)


def _test_offset(population: Population) -> float:
    return (population.clients + 0.5) / (population.clients + 1)
