"""BatchNorm statistics: averaged under a policy, and touched by nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import Dampened
from fedpace.server import Pruning, Schedule, ServerSGD
from tests.stages import stage_with

from .helpers import buffers, exchange, server

SENT = [buffers([1.0, 10.0], [3]), buffers([2.0, 20.0], [9]), buffers([6.0, 60.0], [5])]
EXAMPLES = [10, 30, 60]
AFTER = {
    "weighted_mean": ([0.1 + 0.6 + 3.6, 1 + 6 + 36], [9]),
    "mean": ([3.0, 30.0], [9]),
    "first": ([1.0, 10.0], [3]),
    "local": ([7.0, 7.0], [7]),
    "keep_server": ([7.0, 7.0], [7]),
}


def after(policy, sent=SENT, examples=EXAMPLES, schedule=None):
    here = server(schedule, held=buffers([7.0, 7.0], [7]), buffer_policy=policy)
    exchange(here, torch.ones(len(sent), 6), held=sent, examples=examples)
    return here.buffers


@pytest.mark.parametrize("policy", AFTER)
def test_policies(policy):
    found = after(policy)
    assert found.floats.tolist() == pytest.approx(AFTER[policy][0])
    assert found.integers.tolist() == AFTER[policy][1]
    assert (found.floats.dtype, found.integers.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("policy", AFTER)
def test_clients_that_send_gradients_leave_the_servers_statistics(policy):
    found = after(policy, sent=[None, None], examples=[1, 2])
    assert (found.floats.tolist(), found.integers.tolist()) == ([7.0, 7.0], [7])


def test_integers_are_exact_beyond_what_a_float_holds():
    large = 2**53 + 1
    assert after("mean", [buffers([0.0, 0.0], [large]), buffers([0.0, 0.0], [1])], [1, 1]).integers.tolist() == [large]


def test_a_running_sum_over_many_clients_keeps_its_precision():
    sent = [buffers([0.1, 1e4], [0])] * 2000
    found = after("weighted_mean", sent, [977] * 2000)
    assert torch.equal(found.floats, torch.tensor([0.1, 1e4]))


@given(
    variances=st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=6),
    lr=st.floats(0.1, 10),
    momentum=st.floats(0, 0.9),
    policy=st.sampled_from(list(AFTER)),
    data=st.data(),
)
def test_a_variance_stays_within_what_clients_sent(variances, lr, momentum, policy, data):
    """No rule, mask or optimizer touches statistics: a large step cannot make a variance negative."""
    examples = data.draw(st.lists(st.integers(1, 10**6), min_size=len(variances), max_size=len(variances)))
    base = stage_with(rule=Dampened(), optimizer=ServerSGD(lr=lr, momentum=momentum), counts=True, prunes=True)
    schedule = Schedule(base=base, pruning=Pruning(threshold=2.0))
    found = after(policy, [buffers([v, v], [0]) for v in variances], examples, schedule)
    seen = [*variances, 7.0] if policy in ("local", "keep_server") else variances
    low, high = min(seen), max(seen)
    assert low * (1 - 1e-6) <= found.floats.min() <= found.floats.max() <= high * (1 + 1e-6)


def test_clients_buffers_are_copied():
    """A worker overwrites them with the next client's."""
    sent = [buffers([1.0, 1.0], [1])]
    for policy in ("mean", "weighted_mean", "first"):
        found = after(policy, sent, [5])
        found.floats.add_(1)
        found.integers.add_(1)
        assert (sent[0].floats.tolist(), sent[0].integers.tolist()) == ([1.0, 1.0], [1])


def test_later_clients_do_not_reach_into_the_first_ones_integers():
    sent = [buffers([1.0, 1.0], [1]), buffers([2.0, 2.0], [5])]
    after("mean", sent, [1, 1])
    assert sent[0].integers.tolist() == [1]
