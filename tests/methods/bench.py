"""One client of a personalised method on tiny data, and whole runs on digits."""

import copy
from dataclasses import replace
from functools import cache

import torch
from torch.nn import functional as F

from fedpace.client import Context
from fedpace.core import FlatModule
from fedpace.data import load
from fedpace.engine import Cohort, Serial, train
from fedpace.methods import Personal, PersonalEvaluation, methods
from fedpace.server import Schedule
from tests.client.helpers import normed, shard
from tests.engine import small

METHODS = [name for name in methods.names() if issubclass(methods.get(name), Personal)]  # each has a preset of its name
STEPS = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "batch": 8, "epochs": 1}


class Client:
    """Its resident model, what it keeps from turn to turn, and what the server would send it."""

    def __init__(self, method, module=None, training=None):
        self.module = method.prepare(copy.deepcopy(module or normed()), seed=0)  # never trained
        self.method, self.training = method, training or shard()
        self.layout = method.layout(self.module)
        self.model = FlatModule(copy.deepcopy(self.module), self.layout)
        self.vector = self.layout.take_shared(self.model.vector).clone()
        self.buffers = self.model.buffers.clone()
        self.state = method.first_state(self.model)
        server_side = method.server_side(self.layout, 1)
        self.extras = {} if server_side is None else {**server_side.sends(), **server_side.sends_to(0)}

    def context(self, seed=7):
        return Context(self.model, self.buffers, 0, seed, self.extras, self.state, self.training)

    def turn(self, seed=7):
        """An update that owns its tensors; what is kept is there at the next turn."""
        update = self.method.turn(self.vector, self.training, self.context(seed))
        kept = None if update.state is None else {name: tensor.clone() for name, tensor in update.state.items()}
        self.state = kept or self.state
        return replace(update, vector=update.vector.clone(), buffers=update.buffers.clone(), state=kept)

    def scores(self, inputs, seed=7):
        predict = self.method.predictor(self.vector, self.context(seed))
        with torch.inference_mode():
            return predict(inputs).clone()

    def measured(self, test, seed=7):
        return PersonalEvaluation(method=self.method)(self.vector, test, self.context(seed)).metrics


def watched(method, **settings):
    """The method, and a list of the batches that it is given."""
    seen = []

    class Watched(method):
        def loss_of(self, start, shard, context):
            inner = super().loss_of(start, shard, context)

            def loss(module, inputs, targets):
                seen.append((inputs, targets))
                return inner(module, inputs, targets)

            return loss

    return Watched(**settings), seen


def sgd(module, batch, lr, trained=lambda name: True):
    """One step by hand."""
    chosen = [parameter for name, parameter in module.named_parameters() if trained(name)]
    loss = F.cross_entropy(module(batch[0]), batch[1])
    with torch.no_grad():
        for parameter, gradient in zip(chosen, torch.autograd.grad(loss, chosen), strict=True):
            parameter -= lr * gradient


def noise(like, scale=0.1, seed=0):
    return scale * torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))


@cache
def federation():
    return load("digits").partition("practical", clients=3, seed=0)


def run(method, folder=None, resume=False, listeners=(), data=None, **changes):
    """Three rounds with two of three clients, whose statistics stay with them."""
    settings = {"schedule": Schedule(), "rounds": 3, "cohort": Cohort(number=2), "buffers": "local"}
    plan = small.plan(**{**settings, "executor": Serial(), "local": method, **changes})
    return train(small.module(), data or federation(), plan, folder=folder, resume=resume, listeners=listeners)
