"""The server: its round, guard, annealing, aggregation, optimizers, pruning, and the schedule that composes them."""

from fedpace.server.annealing import Annealing
from fedpace.server.bounds import Bounded, Bounds
from fedpace.server.buffers import BufferPolicy
from fedpace.server.clipping import Adaptive, Clipping, Fixed, Quantile, clippings
from fedpace.server.freezing import Freezing, frozen_by
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
from fedpace.server.privacy import Privacy, PrivateRound
from fedpace.server.pruning import Pruner, Pruning
from fedpace.server.round import Ask, AskProbes, AskSums, AskUpdates, Round
from fedpace.server.schedule import AnyOptimizer, AnyPace, Exchange, Schedule, Stage
from fedpace.server.server import ExchangeReport, Server
from fedpace.server.staleness import (
    AnyStaleness,
    ConstantStaleness,
    HingeStaleness,
    PolynomialStaleness,
    Staleness,
    staleness_weights,
)
from fedpace.server.sums import FEWEST, HIGHEST_BOUND, Collected, Secure, Weighing

__all__ = [
    "FEWEST",
    "HIGHEST_BOUND",
    "Adaptive",
    "Annealing",
    "AnyOptimizer",
    "AnyPace",
    "AnyStaleness",
    "Ask",
    "AskProbes",
    "AskSums",
    "AskUpdates",
    "Bounded",
    "Bounds",
    "BufferPolicy",
    "Clipping",
    "Collected",
    "ConstantStaleness",
    "Exchange",
    "ExchangeReport",
    "Fixed",
    "Freezing",
    "Guard",
    "HingeStaleness",
    "Pace",
    "PolynomialStaleness",
    "Privacy",
    "PrivateRound",
    "Pruner",
    "Pruning",
    "Quantile",
    "Round",
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
    "Staleness",
    "Weighing",
    "clippings",
    "frozen_by",
    "optimizers",
    "paces",
    "staleness_weights",
]
