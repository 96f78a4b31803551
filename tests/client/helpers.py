"""Tiny data and models, and what a client does written out by hand."""

import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from fedpace.client import Context
from fedpace.core import FlatModule
from fedpace.data import load
from fedpace.methods import Method

FEATURES, CLASSES = 5, 3


def shards(*sizes, seed=0):
    """Clients of these sizes: noisy inputs with labels that a linear model can learn."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), FEATURES, generator=generator)
    labels = (inputs[:, :CLASSES] + 0.3 * torch.randn(sum(sizes), CLASSES, generator=generator)).argmax(1)
    labels[:CLASSES] = torch.arange(CLASSES)  # every class occurs
    data = load((inputs, labels), test=(inputs[:CLASSES], labels[:CLASSES]))
    whole = data.partition("iid", clients=1).clients[0]
    cuts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [type(whole)(whole.pool, whole.indices[a:b]) for a, b in pairwise(cuts)]


def shard(size=40, seed=0):
    return shards(size, seed=seed)[0]


def plain():
    torch.manual_seed(3)
    return nn.Linear(FEATURES, CLASSES)


def normed():
    """BatchNorm behind a layer without a bias: that bias would have no gradient but noise, which Adam would enlarge."""
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Linear(FEATURES, 6, bias=False), nn.BatchNorm1d(6), nn.LeakyReLU(), nn.Linear(6, CLASSES, bias=True)
    )


class Bench:
    """A resident model, and the server's vector and buffers beside it."""

    def __init__(self, module):
        self.module = copy.deepcopy(module)  # never trained: a hand-written loop starts from a copy of it
        self.model = FlatModule(copy.deepcopy(module))
        self.vector = self.model.vector.clone()
        self.buffers = self.model.buffers.clone()

    def context(self, seed=7, client=0, extras=None, state=None):
        return Context(self.model, self.buffers, client, seed, extras or {}, state or {})

    def run(self, work, shard, **context):
        """An update that owns its tensors, like one that travelled."""
        work = work.work() if isinstance(work, Method) else work
        update = work(self.vector, shard, self.context(**context))
        update.vector = None if update.vector is None else update.vector.clone()
        update.buffers = None if update.buffers is None else update.buffers.clone()
        return update

    def at(self, vector):
        """The module with other parameters."""
        module = copy.deepcopy(self.module)
        nn.utils.vector_to_parameters(vector, module.parameters())
        return module


def flat(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def statistics(module):
    """Float buffers and integer buffers in order."""
    buffers = list(module.buffers())
    floats = [b.flatten() for b in buffers if b.is_floating_point()]
    integers = [b.flatten() for b in buffers if not b.is_floating_point()]
    return torch.cat(floats), torch.cat(integers)


def mean_gradient(module, batches):
    """Autograd's gradient of each batch, averaged, in training mode."""
    rows = []
    for inputs, labels in batches:
        loss = F.cross_entropy(module.train()(inputs), labels)
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows).mean(0)


def same(one, two):
    """Bitwise equality of two updates."""
    vectors = (one.vector, two.vector)
    if any(v is None for v in vectors):
        return vectors == (None, None) and one.metrics == two.metrics
    buffers = (one.buffers, two.buffers)
    if any(b is None for b in buffers):
        return buffers == (None, None) and torch.equal(*vectors) and one.metrics == two.metrics
    return (
        torch.equal(*vectors)
        and one.metrics == two.metrics
        and torch.equal(one.buffers.floats, two.buffers.floats)
        and torch.equal(one.buffers.integers, two.buffers.integers)
    )


class Recorder:
    """A shard that remembers which positions it was asked for."""

    def __init__(self, shard):
        self._shard = shard
        self.asked = []

    def __len__(self):
        return len(self._shard)

    def batch(self, positions, rng=None, padding=0):
        self.asked.append(positions.tolist())
        return self._shard.batch(positions, rng, padding)
