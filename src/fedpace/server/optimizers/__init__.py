"""Server optimisers, one per file."""

from fedpace.server.optimizers._optimizer import ServerOptimizer, optimizers
from fedpace.server.optimizers.sgd import ServerSGD

__all__ = ["ServerOptimizer", "ServerSGD", "optimizers"]
