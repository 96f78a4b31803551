"""Residual networks for small images, after He et al. (2016)."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.models._model import check_images, models
from fedpace.models._norm import Norm, normalisation


class ResNet(nn.Module):
    """A 3 × 3 convolution, stages of basic blocks, mean over pixels, linear. Stages after the first halve the image.

    The stem is CIFAR's, of stride 1 and without pooling: ImageNet's would leave little of a small image.
    """

    name: ClassVar[str]
    widths: ClassVar[tuple[int, ...]]
    blocks: ClassVar[int]  # in each stage

    def __init__(self, shape: tuple[int, ...], classes: int, norm: Norm = "group") -> None:
        super().__init__()
        check_images(self.name, shape, smallest=8)
        stem = self.widths[0]
        self.features = nn.Sequential(
            *(_convolution(shape[0], stem), normalisation(norm, stem), nn.ReLU()),
            _stage(stem, stem, self.blocks, 1, norm),
            *(_stage(inputs, outputs, self.blocks, 2, norm) for inputs, outputs in pairwise(self.widths)),
        )
        self.head = nn.Linear(self.widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return scores


@models.register("resnet18")
class ResNet18(ResNet):
    """ResNet-18 for small images: four stages of two basic blocks (64, 128, 256, 512), GroupNorm or BatchNorm.

    With GroupNorm the model of GMA's CIFAR and TinyImageNet experiments. Any number of channels; images of 8 × 8 pixels
    or more. RGB and 10 classes: 11,173,962 parameters.
    """

    widths = (64, 128, 256, 512)
    blocks = 2


@models.register("resnet8")
class ResNet8(ResNet):
    """ResNet-8, narrow enough for CPUs: three stages of one basic block (16, 32, 64), GroupNorm or BatchNorm.

    Any number of channels; images of 8 × 8 pixels or more. RGB and 10 classes: 78,042 parameters.

    >>> sum(p.numel() for p in ResNet8((3, 32, 32), 10).parameters())
    78042
    """

    widths = (16, 32, 64)
    blocks = 1


class _Block(nn.Module):
    """The basic block: two 3 × 3 convolutions beside a shortcut, a 1 × 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *(_convolution(inputs, outputs, stride=stride), normalisation(norm, outputs), nn.ReLU()),
            *(_convolution(outputs, outputs), normalisation(norm, outputs)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if (inputs, stride) != (outputs, 1):
            projection = _convolution(inputs, outputs, size=1, stride=stride)
            self.shortcut = nn.Sequential(projection, normalisation(norm, outputs))

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.residual(images) + self.shortcut(images))


def _stage(inputs: int, outputs: int, blocks: int, stride: int, norm: Norm) -> nn.Sequential:
    rest = (_Block(outputs, outputs, 1, norm) for _ in range(blocks - 1))
    return nn.Sequential(_Block(inputs, outputs, stride, norm), *rest)


def _convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Without bias, because a normalisation with a shift of its own follows; initial weights of He et al. (2015)."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
