"""Random points around a vector that a seed describes completely, so that only seeds need to travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fnmatch import fnmatchcase
from typing import Annotated

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from fedpace.core import devices
from fedpace.core.layout import Layout
from fedpace.core.settings import Named, Registry, Settings, by_name


class Scaling(Named, ABC):
    """What a perturbation of size ``rho`` is relative to."""

    @abstractmethod
    def factor(self, vector: Tensor, layout: Layout) -> Tensor | float:
        """Factor of the noise around ``vector``: a number, or one per coordinate."""


scalings: Registry[Scaling] = Registry("scaling", Scaling)


@scalings.register("none")
class Unscaled(Scaling):
    """Absolute noise (the FedGGA baseline)."""

    def factor(self, vector: Tensor, layout: Layout) -> float:
        """One."""
        return 1.0


@scalings.register("norm")
class NormScaled(Scaling):
    """Noise times ‖θ‖₂ of the vector being perturbed (FedPACE)."""

    def factor(self, vector: Tensor, layout: Layout) -> float:
        """The norm, never zero."""
        return float(vector.norm()) + 1e-12


@scalings.register("per_tensor")
class TensorScaled(Scaling):
    """Noise times the norm of each tensor, so that every layer moves by the same relative amount."""

    def factor(self, vector: Tensor, layout: Layout) -> Tensor:
        """The norm of the tensor that each coordinate belongs to."""
        factors = torch.empty_like(vector)
        for _, part in layout.tensors(torch.arange(len(vector))):
            factors[part.flatten()] = vector[part.flatten()].norm() + 1e-12
        return factors


class Perturbation(Settings):
    """Uniform noise: θ + ``rho`` · z · s with z ~ U(−1, 1)ᵈ from a seed and s from the scaling.

    ``only`` is a pattern of parameter names ("features.*"): the others stay where they are.
    """

    rho: float = Field(1e-5, gt=0)
    scaling: SerializeAsAny[Annotated[Scaling, by_name(scalings, "norm")]] = NormScaled()
    only: str = "*"

    def offset(self, vector: Tensor, layout: Layout, seed: int) -> Tensor:
        """The step of one seed, drawn on the CPU in float32 so that every machine draws the same."""
        noise = torch.rand(len(vector), generator=torch.Generator(devices.HOST).manual_seed(seed)).mul_(2).sub_(1)
        if self.only != "*":
            noise *= layout.where(lambda name, _: fnmatchcase(name, self.only))
        return noise.to(vector.device).mul_(self.rho).mul_(self.scaling.factor(vector, layout))

    def follow(self, vector: Tensor, layout: Layout, path: tuple[int, ...]) -> Tensor:
        """The point that a path of seeds leads to; the empty path is ``vector`` itself, bitwise."""
        for seed in path:
            vector = vector + self.offset(vector, layout, seed)
        return vector
