"""Random flips."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedpace.data.augmentations._augmentation import Augmentation, augmentations
from fedpace.data.examples import Array


@augmentations.register("flip")
class Flip(Augmentation):
    """Left becomes right in each image with probability ``p``.

    Parameters: ``p``.
    """

    p: float = Field(0.5, ge=0, le=1)

    def __call__(self, inputs: Array, rng: np.random.Generator) -> Array:
        """Flip some of the images."""
        chosen = rng.random(len(inputs)) < self.p
        flipped = inputs.copy()
        flipped[chosen] = inputs[chosen, :, ::-1]
        return flipped
