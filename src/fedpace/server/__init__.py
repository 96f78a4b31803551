"""The server's round: guard, annealing, aggregation, optimiser, pruning, and the schedule that composes them."""

from fedpace.server.annealing import Annealing
from fedpace.server.buffers import BufferPolicy
from fedpace.server.freezing import Freezing
from fedpace.server.guard import Guard
from fedpace.server.optimizers import (
    ServerAdagrad,
    ServerAdam,
    ServerOptimizer,
    ServerSGD,
    ServerYogi,
    optimizers,
)
from fedpace.server.pace import Pace, ShuffledPace, paces
from fedpace.server.pruning import Pruner, Pruning
from fedpace.server.schedule import AnyOptimizer, AnyPace, AnyRule, Schedule, Stage
from fedpace.server.server import ExchangeReport, Server
from fedpace.server.sums import FEWEST, Collected, Secure, Weighing
from fedpace.server.traffic import traffic

__all__ = [
    "FEWEST",
    "Annealing",
    "AnyOptimizer",
    "AnyPace",
    "AnyRule",
    "BufferPolicy",
    "Collected",
    "ExchangeReport",
    "Freezing",
    "Guard",
    "Pace",
    "Pruner",
    "Pruning",
    "Schedule",
    "Secure",
    "Server",
    "ServerAdagrad",
    "ServerAdam",
    "ServerOptimizer",
    "ServerSGD",
    "ServerYogi",
    "ShuffledPace",
    "Stage",
    "Weighing",
    "optimizers",
    "paces",
    "traffic",
]
