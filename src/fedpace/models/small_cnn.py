"""The FedPACE paper's network."""

from __future__ import annotations

from torch import Tensor, nn

from fedpace.models._model import check_images, models
from fedpace.models._norm import Norm, normalisation


@models.register("small_cnn")
class SmallCNN(nn.Module):
    """Three 3 × 3 convolutions (32, 64, 128), each with BatchNorm, ReLU, 2 × 2 max-pooling; mean over pixels; linear.

    The model of the FedPACE paper, whose text omits the ReLUs that its code has. RGB and 10 classes: 94,986 parameters.
    ``norm = "group"`` replaces BatchNorm.

    >>> sum(p.numel() for p in SmallCNN((3, 32, 32), 10).parameters())
    94986
    """

    def __init__(self, shape: tuple[int, ...], classes: int, norm: Norm = "batch") -> None:
        super().__init__()
        check_images("small_cnn", shape, smallest=8)
        self.features = nn.Sequential(_block(shape[0], 32, norm), _block(32, 64, norm), _block(64, 128, norm))
        self.head = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return scores


def _block(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), normalisation(norm, outputs), nn.ReLU(), nn.MaxPool2d(2)
    )
