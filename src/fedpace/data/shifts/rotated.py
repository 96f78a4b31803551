"""FedRotMNIST: an angle for each client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedpace.data.examples import Array, Indices
from fedpace.data.shifts._shift import Mechanism, Population, Shift, shifts


@dataclass(frozen=True)
class Rotation(Mechanism):
    """Counter-clockwise by ``angle`` degrees about the centre; bilinear, and zero where there was no image."""

    angle: float

    def __call__(self, images: Array, labels: Indices, indices: Indices) -> Array:
        """Rotate a batch."""
        values = images.reshape(len(images), -1)
        rotated = np.zeros(values.shape, np.float32)
        for sources, weights in _neighbours(self.angle, images.shape[1:]):
            rotated += values.take(sources, axis=1) * weights
        return np.rint(rotated, out=rotated).astype(np.uint8).reshape(images.shape)


@lru_cache(maxsize=8)  # one client's batches come one after another
def _neighbours(angle: float, shape: tuple[int, int, int]) -> list[tuple[Indices, NDArray[np.float32]]]:
    """For each value of an image of this shape, the four values that it is mixed of and their weights."""
    height, width, channels = shape
    cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = np.mgrid[:height, :width] - np.array([middle_y, middle_x])[:, None, None]
    rows, columns = cos * y + sin * x + middle_y, cos * x - sin * y + middle_x  # rows count downwards
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    found = []
    for row in (top, top + 1):
        for column in (left, left + 1):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weights = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column)) * inside
            pixels = np.where(inside, row * width + column, 0)
            values = pixels.reshape(-1, 1) * channels + np.arange(channels)
            found.append((values.ravel(), weights.astype(np.float32).repeat(channels)))
    return found


@shifts.register("rotated")
class Rotated(Shift):
    """Each client holds its images at another angle, and the test set at one outside their range (FedRotMNIST of GMA).

    The paper does not say which. Here client i of M rotates by an angle that grows evenly from −60° to 60° with i.

    Parameters: ``angles``, the first and the last client's, in degrees counter-clockwise (a single client has their
    mean); ``test_angle``.
    """

    angles: tuple[float, float] = (-60.0, 60.0)
    test_angle: float = 90.0

    def for_client(self, client: int, population: Population) -> Rotation:
        """Evenly from the first to the last angle."""
        first, last = self.angles
        along = client / (population.clients - 1) if population.clients > 1 else 0.5
        return Rotation(first + (last - first) * along)

    def for_test(self, population: Population) -> Rotation:
        """An angle of its own."""
        return Rotation(self.test_angle)
