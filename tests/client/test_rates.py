"""Learning rates that change over a run."""

from itertools import pairwise

import pytest
import torch

from fedpace.client import rates
from fedpace.methods import LocalSGD, Proximal

from .helpers import Bench, plain, shard


@pytest.mark.parametrize("name", [name for name in rates.names() if name != "warm_up"])
def test_a_rate_begins_at_the_learning_rate_and_never_exceeds_it(name):
    factors = [rates.get(name)().factor(step / 50) for step in range(51)]
    assert factors[0] == 1
    assert all(0 <= later <= earlier for earlier, later in pairwise(factors))


def test_a_warm_up_rises_to_the_learning_rate_and_then_is_another_rate():
    rate = rates.get("warm_up")(share=0.2, start=0.1, then={"name": "step", "at": (0.5,), "by": 0.5})
    factors = [rate.factor(step / 50) for step in range(51)]
    assert factors[0] == 0.1
    assert factors[:11] == sorted(factors[:11])
    assert (factors[10], factors[29], factors[31], factors[50]) == (1, 1, 0.5, 0.5)


def test_work_late_in_a_run_is_work_with_a_lower_rate_bitwise():
    bench, own = Bench(plain()), shard()
    work = Proximal(mu=0.1, lr=0.01, rate={"name": "decay", "start": 0.5, "end": 0.01})
    assert work.at(0.4) is work
    late = bench.run(work.at(0.75), own).vector
    assert torch.equal(late, bench.run(Proximal(mu=0.1, lr=0.01 * 0.1), own).vector)


def test_a_constant_rate_is_the_default():
    assert LocalSGD().at(0.99) == LocalSGD()
