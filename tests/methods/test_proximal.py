"""FedProx against a hand-written loop, and against FedAvg where μ = 0."""

import pytest
import torch
from pydantic import ValidationError

from fedpace.methods import LocalSGD, Proximal
from tests.client.helpers import Bench, plain, shard

STEPS = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "batch": 8, "max_steps": 5}


def test_without_mu_it_is_local_training_bitwise():
    bench, own = Bench(plain()), shard()
    assert torch.equal(bench.run(Proximal(mu=0, **STEPS), own).vector, bench.run(LocalSGD(**STEPS), own).vector)


def test_a_step_adds_mu_times_the_way_gone():
    """One step feels no pull; of two, the second is shorter by lr·μ times the first."""
    bench, own = Bench(plain()), shard()
    one = bench.run(LocalSGD(**{**STEPS, "max_steps": 1}), own).vector
    two = bench.run(LocalSGD(**{**STEPS, "max_steps": 2}), own).vector
    work = Proximal(mu=0.7, **{**STEPS, "max_steps": 1})
    assert torch.equal(bench.run(work, own).vector, one)
    work = Proximal(mu=0.7, **{**STEPS, "max_steps": 2})
    torch.testing.assert_close(bench.run(work, own).vector, two - 0.1 * 0.7 * one)


def test_a_strong_pull_keeps_the_client_at_home():
    bench, own = Bench(plain()), shard()
    way = [bench.run(Proximal(mu=mu, **{**STEPS, "max_steps": 40}), own).vector.norm() for mu in (0, 1, 9)]
    assert way[0] > way[1] > way[2]


@pytest.mark.parametrize("mu", [-0.1, float("nan"), float("inf")])
def test_mu_must_be_a_number_that_is_not_negative(mu):
    with pytest.raises(ValidationError):
        Proximal(mu=mu)
