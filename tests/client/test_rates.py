"""Learning rates that change over a run."""

from itertools import pairwise

import pytest
import torch

from fedpace.client import LocalSGD, Proximal, rates

from .helpers import Bench, plain, shard


@pytest.mark.parametrize("name", rates.names())
def test_a_rate_begins_at_the_learning_rate_and_never_exceeds_it(name):
    factors = [rates.get(name)().factor(step / 50) for step in range(51)]
    assert factors[0] == 1
    assert all(0 <= later <= earlier for earlier, later in pairwise(factors))


def test_work_late_in_a_run_is_work_with_a_lower_rate_bitwise():
    bench, own = Bench(plain()), shard()
    work = Proximal(mu=0.1, lr=0.01, rate={"name": "decay", "start": 0.5, "end": 0.01})
    assert work.at(0.4) is work
    late = bench.run(work.at(0.75), own).vector
    assert torch.equal(late, bench.run(Proximal(mu=0.1, lr=0.01 * 0.1), own).vector)


def test_a_constant_rate_is_the_default():
    assert LocalSGD().at(0.99) == LocalSGD()
