"""A small federation, model and plan on which whole runs take a fraction of a second."""

import torch
from torch import nn

from fedpace.aggregation import Dampened
from fedpace.client import Gradient
from fedpace.core import Update
from fedpace.data import Federation, load
from fedpace.engine import Plan
from fedpace.methods import LocalSGD
from fedpace.models import build
from fedpace.server import Annealing, Pace, Pruning, Schedule, ServerSGD
from tests.stages import stage_with

ROUNDS = 6
STEP = ServerSGD(lr=0.5, momentum=0.5)


def federation(clients: int = 5) -> Federation:
    return load("digits").partition("dirichlet", alpha=0.3, clients=clients, seed=0)


def module(seed: int = 0) -> nn.Module:
    """The real model, because BatchNorm and convolutions are where executors could differ."""
    return build("small_cnn", (1, 8, 8), 10, seed)


def every_stage() -> Schedule:
    """FedAvg, annealing, a pace and what it does, dampening with momentum and pruning, in six rounds."""
    return Schedule(
        stages=(
            stage_with(name="anneal", first=1, last=1, search=Annealing(k=2)),
            stage_with(name="pace", first=2, last=2, pace=Pace()),
            stage_with(name="dampen", first=3, last=3, rule=Dampened(), optimizer=STEP, pace=Pace()),
            stage_with(name="prune", first=4, sends="gradient", rule=Dampened(), counts=True, prunes=True),
        ),
        pruning=Pruning(threshold=0.3),
    )


def plan(**changes) -> Plan:
    settings = {"schedule": every_stage(), "rounds": ROUNDS, "seed": 3}
    settings |= {"local": LocalSGD(max_steps=2), "gradient": Gradient(max_steps=2)}
    return Plan(**{**settings, **changes})


def weights(trained: nn.Module) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in trained.state_dict().values()])


def copied(update: Update) -> Update:
    """An update that survives the next one."""
    vector = None if update.vector is None else update.vector.clone()
    buffers = None if update.buffers is None else update.buffers.clone()
    return Update(
        update.client, vector, update.examples, update.metrics, buffers, update.failure, update.extras, update.state
    )
