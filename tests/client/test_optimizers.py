"""Local training with any optimizer of torch, clipped and accumulated gradients."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fedpace.client.optimizers import optimizer_names
from fedpace.core import ConfigError
from fedpace.experiments import load_config
from fedpace.methods import LocalSGD

from .helpers import Bench, flat, plain, shard

STEPS = {"epochs": 1, "batch": 8, "lr": 0.01, "weight_decay": 0.0}


@pytest.mark.parametrize("name", optimizer_names())
def test_each_optimizer_does_what_it_does_in_a_plain_loop(name):
    bench, data = Bench(plain()), shard()
    work = LocalSGD(optimizer=name, **STEPS)
    module = copy.deepcopy(bench.module)
    cls = next(getattr(torch.optim, found) for found in dir(torch.optim) if found.lower() == name)
    optimizer = cls(module.parameters(), lr=0.01, weight_decay=0.0)
    for inputs, labels in work.batches(data, bench.context()):
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    found = bench.run(work, data).vector
    torch.testing.assert_close(found, flat(module) - flat(bench.module), rtol=1e-4, atol=1e-6)
    assert found.abs().max() > 1e-5


def test_parameters_of_the_optimizer_reach_it():
    bench, data = Bench(plain()), shard()
    plainly, nesterov = (
        bench.run(LocalSGD(optimizer="SGD", momentum=0.9, options=options, **STEPS), data).vector
        for options in ({}, {"nesterov": True})
    )
    assert not torch.equal(plainly, nesterov)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local.optimizer": "adamm"}, "unknown optimizer 'adamm'; did you mean 'adam"),
        ({"local.optimizer": "lbfgs"}, "several times a step"),
        ({"local.optimizer": "adamw", "local.momentum": 0.9}, "unknown parameter 'momentum'"),
        ({"local.momentum": 0.9}, "unknown parameter 'momentum'"),
        ({"local.optimizer": "adamw", "local.options": {"amsgard": True}}, "did you mean 'amsgrad'"),
        ({"local.optimizer": "sgd", "local.options": {"nesterov": True}}, "esterov momentum requires a momentum"),
        ({"local.clip": 0}, "clip: "),
        ({"local.accumulate": 0}, "accumulate: "),
    ],
)
def test_what_torch_does_not_know_is_one_line(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config("fedavg", settings)
    assert "\n" not in str(caught.value)


def test_a_step_of_clipped_gradients_has_at_most_that_length():
    bench, data = Bench(plain()), shard()
    one = {"optimizer": "sgd", "batch": 8, "max_steps": 1, "lr": 1.0, "weight_decay": 0.0}
    free, clipped, loose = (bench.run(LocalSGD(clip=clip, **one), data).vector for clip in (None, 0.01, 1e6))
    assert clipped.norm() == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm())
    assert torch.equal(loose, free)


def test_accumulated_batches_are_one_large_batch():
    bench, data = Bench(plain()), shard(48)
    small = LocalSGD(optimizer="sgd", batch=8, accumulate=2, epochs=1, lr=0.1)
    large = LocalSGD(optimizer="sgd", batch=16, epochs=1, lr=0.1)
    torch.testing.assert_close(bench.run(small, data).vector, bench.run(large, data).vector)
