"""Models: torch modules built from ``(shape, classes)``, found by name in ``models``, and the user's own."""

from fedpace.models._model import models
from fedpace.models.build import build, head_names
from fedpace.models.lenet import LeNet
from fedpace.models.linear import Linear
from fedpace.models.small_cnn import SmallCNN

__all__ = ["LeNet", "Linear", "SmallCNN", "build", "head_names", "models"]
