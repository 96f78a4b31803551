"""Server optimizers, one per file."""

from fedpace.server.optimizers._adaptive import Adaptive
from fedpace.server.optimizers._optimizer import ServerOptimizer, optimizers
from fedpace.server.optimizers.adagrad import ServerAdagrad
from fedpace.server.optimizers.adam import ServerAdam
from fedpace.server.optimizers.sgd import ServerSGD
from fedpace.server.optimizers.yogi import ServerYogi

__all__ = [
    "Adaptive",
    "ServerAdagrad",
    "ServerAdam",
    "ServerOptimizer",
    "ServerSGD",
    "ServerYogi",
    "optimizers",
]
