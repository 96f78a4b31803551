import numpy as np
import pytest

from fedpace.core import parse
from fedpace.engine import EqualSpeeds, LognormalSpeeds, SpeedsByExamples
from fedpace.engine.speeds import speeds
from fedpace.methods import LocalSGD
from tests.engine import small

CLIENTS = small.federation().clients


def durations(chosen, local=LocalSGD(), clients=CLIENTS, seed=3):  # noqa: B008  # it has no state
    found = chosen.of(local, clients, seed)
    return [found(client) for client in range(len(clients))]


@pytest.mark.parametrize("name", speeds.names())
def test_every_turn_takes_some_time_which_follows_from_seed_and_client(name):
    chosen = parse(speeds, name)
    first, again = durations(chosen), durations(chosen)
    assert first == again
    assert min(first) > 0
    assert durations(chosen, clients=CLIENTS[:2]) == first[:2], "whoever else there is"
    assert name == "equal" or durations(chosen, seed=4) != first


def test_equal_speeds():
    assert durations(EqualSpeeds()) == [1.0] * len(CLIENTS)


def test_logarithms_of_durations_have_the_deviation_that_is_asked_for():
    drawn = np.log([LognormalSpeeds(sigma=0.7).duration(client, 5, seed=0) for client in range(2000)])
    assert drawn.std() == pytest.approx(0.7, rel=0.05)
    assert np.median(drawn) == pytest.approx(0, abs=0.05)


def test_by_examples_time_goes_with_the_local_steps():
    local = LocalSGD(epochs=1, batch=8, max_steps=None)
    steps = [local.steps(shard) for shard in CLIENTS]
    assert len(set(steps)) > 1
    assert durations(SpeedsByExamples(sigma=0), local) == steps
    own = durations(LognormalSpeeds(sigma=0.5), local)
    products = [number * duration for number, duration in zip(steps, own, strict=True)]
    assert durations(SpeedsByExamples(sigma=0.5), local) == pytest.approx(products)
