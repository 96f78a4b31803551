"""The four-layer network of PFLlib."""

from __future__ import annotations

from torch import Tensor, nn

from fedpace.models._model import check_images, models


@models.register("cnn4")
class CNN4(nn.Module):
    """Two 5 × 5 convolutions (32, 64) with ReLU and max-pooling, then 512 units (McMahan et al., 2017; in ConFREE).

    The network of PFLlib, whose convolutions have no padding. Any number of channels; images of 16 × 16 pixels or more.
    CIFAR-100: 924,708 parameters.

    >>> sum(p.numel() for p in CNN4((3, 32, 32), 100).parameters())
    924708
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        check_images("cnn4", shape, smallest=16)
        channels, *sides = shape
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        self.features = nn.Sequential(
            *(nn.Conv2d(channels, 32, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(64 * height * width, 512), nn.ReLU()),
        )
        self.head = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.features(images))
        return scores
