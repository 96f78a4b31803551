import numpy as np
import pytest

from fedpace.core import parse
from fedpace.engine import EqualSpeeds, LognormalSpeeds, SpeedsByExamples, speeds
from fedpace.methods import LocalSGD
from tests.engine import small

CLIENTS = small.federation().clients


@pytest.mark.parametrize("name", speeds.names())
def test_every_turn_takes_some_time_which_follows_from_seed_and_client(name):
    chosen = parse(speeds, name)
    first, again = (chosen.durations(LocalSGD(), CLIENTS, 3) for _ in range(2))
    assert first == again
    assert min(first) > 0
    assert chosen.durations(LocalSGD(), CLIENTS[:2], 3) == first[:2], "whoever else there is"
    assert name == "equal" or chosen.durations(LocalSGD(), CLIENTS, 4) != first


def test_equal_speeds():
    assert EqualSpeeds().durations(LocalSGD(), CLIENTS, 3) == [1.0] * len(CLIENTS)


def test_logarithms_of_durations_have_the_deviation_that_is_asked_for():
    drawn = np.log([LognormalSpeeds(sigma=0.7).duration(client, 5, seed=0) for client in range(2000)])
    assert drawn.std() == pytest.approx(0.7, rel=0.05)
    assert np.median(drawn) == pytest.approx(0, abs=0.05)


def test_by_examples_time_goes_with_the_local_steps():
    local = LocalSGD(epochs=1, batch=8, max_steps=None)
    steps = [local.steps(shard) for shard in CLIENTS]
    assert len(set(steps)) > 1
    assert SpeedsByExamples(sigma=0).durations(local, CLIENTS, 3) == steps
    own = LognormalSpeeds(sigma=0.5).durations(local, CLIENTS, 3)
    products = [number * duration for number, duration in zip(steps, own, strict=True)]
    assert SpeedsByExamples(sigma=0.5).durations(local, CLIENTS, 3) == pytest.approx(products)
