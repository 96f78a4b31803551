"""Models: modules built from ``(shape, classes)`` and options, found by name in ``models``, and the user's own."""

from fedpace.models._head import head_names, head_part
from fedpace.models._model import models
from fedpace.models._options import ModelConfig, parse_model
from fedpace.models._trial import Check, Shape, check_model
from fedpace.models.adapter import Adapter, adapted
from fedpace.models.build import Model, build
from fedpace.models.char_lstm import CharLSTM
from fedpace.models.cnn4 import CNN4
from fedpace.models.lenet import LeNet
from fedpace.models.linear import Linear
from fedpace.models.mlp import MLP
from fedpace.models.resnet import ResNet8, ResNet18
from fedpace.models.small_cnn import SmallCNN
from fedpace.models.tiny_transformer import TinyTransformer
from fedpace.models.weights import load_weights, read_weights

__all__ = [
    "CNN4",
    "MLP",
    "Adapter",
    "CharLSTM",
    "Check",
    "LeNet",
    "Linear",
    "Model",
    "ModelConfig",
    "ResNet8",
    "ResNet18",
    "Shape",
    "SmallCNN",
    "TinyTransformer",
    "adapted",
    "build",
    "check_model",
    "head_names",
    "head_part",
    "load_weights",
    "models",
    "parse_model",
    "read_weights",
]
