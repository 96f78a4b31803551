"""Server steps against steps by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import ConfigError, parse
from fedpace.server import Schedule, ServerSGD, Stage, optimizers

from .helpers import THETA, exchange, server

DELTAS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


@given(lr=st.floats(0.01, 3), momentum=st.floats(0, 0.99))
def test_sgd_by_hand(lr, momentum):
    vector, velocity, state = THETA.double(), torch.zeros(6, dtype=torch.float64), {}
    found = THETA.clone()
    for delta in DELTAS:
        velocity = momentum * velocity + delta.double()
        vector = vector + lr * velocity
        ServerSGD(lr=lr, momentum=momentum).step(found, delta, state)
    torch.testing.assert_close(found.double(), vector, rtol=1e-4, atol=1e-4)


def test_momentum_in_exact_numbers():
    found, state = torch.zeros(1), {}
    steps = []
    for delta in (1.0, 1.0, -2.0, 0.0):
        ServerSGD(lr=2.0, momentum=0.5).step(found, torch.tensor([delta]), state)
        steps.append(found.item())
    assert steps == [2.0, 5.0, 2.5, 1.25]  # v = 1, 1.5, −1.25, −0.625


def test_without_momentum_nothing_is_remembered():
    state = {}
    ServerSGD(lr=0.5).step(THETA.clone(), DELTAS[0], state)
    assert state == {}


def test_the_aggregate_is_not_changed():
    delta = DELTAS[0].clone()
    state = {}
    for _ in range(2):
        ServerSGD(momentum=0.5).step(THETA.clone(), delta, state)
    assert torch.equal(delta, DELTAS[0])


def test_momentum_lives_on_the_server():
    """FedAvgM: the second round moves by Δ + ½Δ."""
    stage = Stage(optimizer=ServerSGD(momentum=0.5))
    here = server(Schedule(base=stage))
    for _ in range(2):
        exchange(here, torch.ones(3, 6))
    assert torch.equal(here.vector, THETA + 1 + 1.5)


@pytest.mark.parametrize("wrong", [{"lr": 0}, {"lr": -1}, {"momentum": 1}, {"momentum": -0.1}, {"beta": 1}])
def test_values_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"server optimizer 'sgd': ") as caught:
        parse(optimizers, {"name": "sgd", **wrong})
    assert "\n" not in str(caught.value)
