"""A pattern in the corner of an image, and the answer that attackers want to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedpace.attacks._attack import Attack, attacks, check_classes
from fedpace.core import DataError
from fedpace.data import Examples
from fedpace.data.examples import Array, kind_of_inputs


@attacks.register("backdoor")
class Backdoor(Attack):
    """Attackers give every ``every``-th training image a white square and the label ``target`` (Gu et al., 2017).

    The square has ``pixels`` × ``pixels`` and lies in the lower right corner. ``boost`` multiplies the attackers'
    updates, so that they replace the model (Bagdasaryan et al., 2020). The attack succeeds as far as test images of
    other classes with the square are taken for the target.
    """

    target: int = Field(0, ge=0)
    every: int = Field(2, ge=1)
    pixels: int = Field(2, ge=1)
    boost: float = Field(1.0, gt=0, allow_inf_nan=False)

    def poisoned(self, examples: Examples) -> Examples:
        """Some with the square and the target's label, the others as they are."""
        chosen = np.arange(len(examples)) % self.every == 0
        inputs, targets = self._images(examples).copy(), examples.labels.copy()
        inputs[chosen] = self._marked(inputs[chosen])
        targets[chosen] = self.target
        return replace(examples, inputs=inputs, targets=targets)

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """Times ``boost``."""
        return self.boost * own

    def goal(self, examples: Examples) -> Examples:
        """All that are not of the target's class, marked, with its label."""
        others = examples.take(np.flatnonzero(examples.labels != self.target))
        return replace(
            others, inputs=self._marked(self._images(others)), targets=np.full_like(others.labels, self.target)
        )

    def _images(self, examples: Examples) -> Array:
        check_classes(self, examples)
        inputs = examples.inputs
        if isinstance(inputs, Mapping) or inputs.dtype != np.uint8:
            raise DataError(f"attack 'backdoor': expected uint8 images, found {kind_of_inputs(inputs)}")
        if self.target >= len(examples.classes):
            raise DataError(
                f"attack 'backdoor': target: expected a class below {len(examples.classes)}, found {self.target}"
            )
        return np.asarray(inputs)

    def _marked(self, images: Array) -> Array:
        marked = images.copy()
        marked[:, -self.pixels :, -self.pixels :] = 255
        return marked
