"""Server optimizers, one per file."""

from fedpace.server.optimizers._adaptive import Adaptive
from fedpace.server.optimizers._optimizer import NOT_FINITE, UNCHANGED, ServerOptimizer, optimizers
from fedpace.server.optimizers.adagrad import ServerAdagrad
from fedpace.server.optimizers.adam import ServerAdam
from fedpace.server.optimizers.sgd import ServerSGD
from fedpace.server.optimizers.yogi import ServerYogi

__all__ = [
    "NOT_FINITE",
    "UNCHANGED",
    "Adaptive",
    "ServerAdagrad",
    "ServerAdam",
    "ServerOptimizer",
    "ServerSGD",
    "ServerYogi",
    "optimizers",
]
