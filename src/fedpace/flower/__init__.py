"""Flower: our client and server code on Flower's messages, and our strategies for anybody's Flower app."""

from fedpace.core import ConfigError

try:
    import flwr as _flwr  # noqa: F401
except ImportError as error:  # an optional dependency
    raise ConfigError("Flower is not installed: pip install 'fedpace[flower]'") from error

from fedpace.flower.client import Node, client_app
from fedpace.flower.execution import FlowerExecution, OnGrid
from fedpace.flower.helpers import answer_probe, apply_pace, gradient_reply, wants_gradient
from fedpace.flower.inprocess import InProcessGrid
from fedpace.flower.secure import SecureExchange
from fedpace.flower.strategies import ConflictFree, FedGGA, FedPACE, GradientMasked, Harmonised, Paced, SignDampened
from fedpace.flower.strategy import ServerStrategy

__all__ = [
    "ConflictFree",
    "FedGGA",
    "FedPACE",
    "FlowerExecution",
    "GradientMasked",
    "Harmonised",
    "InProcessGrid",
    "Node",
    "OnGrid",
    "Paced",
    "SecureExchange",
    "ServerStrategy",
    "SignDampened",
    "answer_probe",
    "apply_pace",
    "client_app",
    "gradient_reply",
    "wants_gradient",
]
