"""LeNet-5 with ReLU."""

from __future__ import annotations

from torch import Tensor, nn

from fedpace.models._model import check_images, models
from fedpace.models._norm import Norm, normalisation


@models.register("lenet")
class LeNet(nn.Module):
    """Two 5 × 5 convolutions (6, 16) with ReLU and max-pooling, then 120 and 84 units (LeCun et al., 1998; in GMA).

    Any number of channels; images of 12 × 12 pixels or more. 61,706 parameters for MNIST. ``norm`` adds a
    normalisation behind each convolution; LeNet has none.

    >>> sum(p.numel() for p in LeNet((1, 28, 28), 10).parameters())
    61706
    """

    def __init__(self, shape: tuple[int, ...], classes: int, norm: Norm | None = None) -> None:
        super().__init__()
        check_images("lenet", shape, smallest=12)
        channels, *sides = shape
        height, width = ((side // 2 - 4) // 2 for side in sides)
        first, second = ([] if norm is None else [normalisation(norm, channel)] for channel in (6, 16))
        self.features = nn.Sequential(
            *(nn.Conv2d(channels, 6, kernel_size=5, padding=2), *first, nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, kernel_size=5), *second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(16 * height * width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        )
        self.head = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.features(images))
        return scores
