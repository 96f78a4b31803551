"""The server's round: guard, annealing, aggregation, optimiser, pruning, and the schedule that composes them."""

from fedpace.server.annealing import Annealing
from fedpace.server.buffers import BufferPolicy
from fedpace.server.guard import Guard
from fedpace.server.optimizers import ServerOptimizer, ServerSGD, optimizers
from fedpace.server.pruning import Pruner, Pruning
from fedpace.server.schedule import AnyOptimizer, AnyRule, Schedule, Stage
from fedpace.server.server import ExchangeReport, Server
from fedpace.server.traffic import traffic

__all__ = [
    "Annealing",
    "AnyOptimizer",
    "AnyRule",
    "BufferPolicy",
    "ExchangeReport",
    "Guard",
    "Pruner",
    "Pruning",
    "Schedule",
    "Server",
    "ServerOptimizer",
    "ServerSGD",
    "Stage",
    "optimizers",
    "traffic",
]
