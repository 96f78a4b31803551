"""Steps that hide each example: gradients of each, clipped, and noise."""

import copy
from math import isnan

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F

from fedpace.client import PrivateSteps
from fedpace.client.private import per_example
from fedpace.core import FlatModule, call
from fedpace.methods import LocalSGD, Proximal
from fedpace.models import build
from tests.client.helpers import CLASSES, FEATURES, Bench, plain, shard

EXACT = PrivateSteps(norm=1e6, noise=1e-12, delta=1e-5)
SGD = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "epochs": 1}


def loss(module, inputs, targets):
    return F.cross_entropy(call(module, inputs), targets)


class Named(nn.Module):
    """Takes its inputs by name; one tensor is used twice and one is frozen."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        self.other.weight = self.one.weight
        self.other.bias.requires_grad_(False)

    def forward(self, left, right):
        return self.one(left) + self.other(right)


def batch(size=6):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, FEATURES, generator=generator), torch.arange(size) % CLASSES


def images(size=4):
    return torch.randn(size, 1, 8, 8, generator=torch.Generator().manual_seed(2)), torch.arange(size)


def named(size=5):
    inputs, targets = batch(size)
    return {"left": inputs, "right": 2 * inputs}, targets


def alone(inputs, i):
    return {name: rows[i : i + 1] for name, rows in inputs.items()} if isinstance(inputs, dict) else inputs[i : i + 1]


@pytest.mark.parametrize(
    ("module", "examples"),
    [
        (plain(), batch()),
        (build({"name": "resnet8", "norm": "group"}, (1, 8, 8), 10, 0), images()),
        (Named(), named()),
    ],
)
def test_gradients_are_those_of_each_example_by_itself(module, examples):
    inputs, targets = examples
    rows = per_example(module, loss, inputs, targets)
    trainable = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    assert set(rows) == set(trainable)
    for i in range(len(targets)):
        module.zero_grad()
        loss(module, alone(inputs, i), targets[i : i + 1]).backward()
        for name, tensor in trainable.items():
            assert torch.allclose(rows[name][i], tensor.grad, atol=1e-5), name


def gradient(private, inputs, targets, seed=0, module=None):
    """What one batch adds to a flat gradient."""
    model = FlatModule(copy.deepcopy(module or plain()))
    told = private.backward(loss, seed)(model, inputs, targets)
    assert isnan(told)  # the loss of a batch has no noise
    return model.gradient


def test_almost_without_noise_and_clipping_it_is_the_gradient_of_the_batch():
    inputs, targets = batch()
    model = FlatModule(plain())
    loss(model.module, inputs, targets).backward()
    assert torch.allclose(gradient(EXACT, inputs, targets), model.gradient, atol=1e-6)


def test_an_example_changes_a_step_by_no_more_than_its_bound():
    """Whatever it is; and one that is long does so by exactly that much."""
    inputs, targets = batch()
    private = PrivateSteps(norm=0.3, noise=1.0, delta=1e-5)
    extreme = inputs.clone()
    extreme[2] = 1e4
    others = torch.arange(6) != 2
    with_it = gradient(private, extreme, targets)
    without = gradient(private, inputs[others], targets[others]) * 5 / 6  # the same noise on the same sum
    assert float((with_it - without).norm()) == pytest.approx(0.3 / 6, rel=1e-4)


def test_noise_has_the_deviation_that_hides_an_example():
    wide = nn.Linear(FEATURES, 4000)
    inputs, targets = batch(4)
    noisy = PrivateSteps(norm=0.5, noise=2.0, delta=1e-5)
    quiet = noisy.model_copy(update={"noise": 1e-9})
    noise = gradient(noisy, inputs, targets, module=wide) - gradient(quiet, inputs, targets, module=wide)
    assert float(noise.std()) == pytest.approx(2.0 * 0.5 / 4, rel=0.03)


def test_noise_is_that_of_its_turn_unless_it_is_secret():
    inputs, targets = batch()
    private = PrivateSteps(noise=1.0, delta=1e-5)
    once, again, other = (gradient(private, inputs, targets, seed) for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    secret = private.model_copy(update={"randomness": "secret"})
    assert not torch.equal(gradient(secret, inputs, targets), gradient(secret, inputs, targets))


def test_batches_of_a_turn_have_noise_of_their_own():
    inputs, targets = batch()
    model = FlatModule(plain())
    add = PrivateSteps(noise=1.0, delta=1e-5).backward(loss, 0)
    add(model, inputs, targets)
    first = model.gradient.clone()
    model.gradient.zero_()
    add(model, inputs, targets)
    assert not torch.equal(first, model.gradient)


@pytest.mark.parametrize("method", [LocalSGD, Proximal])
def test_a_private_turn_is_the_plain_one_almost_without_noise(method):
    bench, own = Bench(plain()), shard(40)
    private = bench.run(method(**SGD, private=EXACT), own)
    usual = bench.run(method(**SGD), own)
    assert torch.allclose(private.vector, usual.vector, atol=1e-5)
    assert isnan(private.metrics["loss"])


@pytest.mark.parametrize("settings", [{"noise": 1.0}, {"delta": 1e-5}, {"noise": 0.0, "delta": 1e-5}])
def test_incomplete_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        LocalSGD(private=settings)
