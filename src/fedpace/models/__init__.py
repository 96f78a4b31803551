"""Models: modules built from ``(shape, classes)`` and options, found by name in ``models``, and the user's own."""

from fedpace.models._head import head_names, head_part
from fedpace.models._model import models
from fedpace.models._options import ModelConfig, parse_model
from fedpace.models.build import Check, Model, Shape, build, check_model
from fedpace.models.cnn4 import CNN4
from fedpace.models.lenet import LeNet
from fedpace.models.linear import Linear
from fedpace.models.resnet import ResNet8, ResNet18
from fedpace.models.small_cnn import SmallCNN

__all__ = [
    "CNN4",
    "Check",
    "LeNet",
    "Linear",
    "Model",
    "ModelConfig",
    "ResNet8",
    "ResNet18",
    "Shape",
    "SmallCNN",
    "build",
    "check_model",
    "head_names",
    "head_part",
    "models",
    "parse_model",
]
