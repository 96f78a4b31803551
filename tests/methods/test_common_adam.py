"""Adam with second moments that all clients share."""

import pytest
import torch

from fedpace.core import Buffers, Layout
from fedpace.methods import CommonAdam, LocalSGD
from fedpace.server import Schedule, Server
from tests.client.helpers import Bench, plain, shard, shards

STEPS = {"lr": 0.01, "weight_decay": 0.0, "batch": 8}


def gradient_of(bench, own):
    """Of the first batch: what one step of plain SGD goes against."""
    return -bench.run(LocalSGD(optimizer="sgd", lr=1.0, weight_decay=0.0, batch=8, max_steps=1), own).vector


def test_one_step_is_measured_by_the_common_moments():
    bench, own = Bench(plain()), shard()
    gradient = gradient_of(bench, own)
    moments = torch.full_like(bench.vector, 4.0)
    update = bench.run(CommonAdam(**STEPS, max_steps=1), own, extras={"moments": moments})
    torch.testing.assert_close(update.vector, -0.01 * (gradient / 2).clamp(-1, 1), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(update.extras["moments"], gradient.square(), atol=1e-6, rtol=1e-4)


def test_without_moments_a_first_step_is_adams():
    bench, own = Bench(plain()), shard()
    ours = bench.run(CommonAdam(**STEPS, max_steps=1), own).vector
    adams = bench.run(LocalSGD(**STEPS, max_steps=1), own).vector
    torch.testing.assert_close(ours, adams, atol=1e-5, rtol=1e-3)


def test_no_step_is_longer_than_the_learning_rate_where_others_saw_no_gradient():
    bench, own = Bench(plain()), shard()
    update = bench.run(CommonAdam(**STEPS, max_steps=3), own, extras={"moments": torch.zeros_like(bench.vector)})
    assert 0 < update.vector.abs().max() <= 3 * 0.01 * 1.0001


def test_a_pace_of_zero_stops_a_coordinate():
    bench, own = Bench(plain()), shard()
    pace = torch.ones_like(bench.vector)
    pace[::2] = 0
    update = bench.run(CommonAdam(**STEPS, max_steps=3), own, extras={"pace": pace})
    assert not update.vector[::2].any()
    assert update.vector[1::2].any()


def test_the_server_averages_squares_by_samples_and_forgets_the_last_round():
    bench, own, work = Bench(plain()), shards(24, 40), CommonAdam(**STEPS, max_steps=2)
    layout = Layout.of(bench.module)
    server_side = work.server_side(layout, 2)
    none = Buffers(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    server = Server(layout, bench.vector, none, Schedule(), server_side=server_side)
    (asked,) = server.schedule.base.exchanges
    assert server.extras(asked) == {}  # before the first round there are none
    for _ in range(2):
        updates = [bench.run(work, one, client=client) for client, one in enumerate(own)]
        server.exchange(asked, updates, 2)
        expected = sum(len(one) * update.extras["moments"] for one, update in zip(own, updates, strict=True)) / 64
        torch.testing.assert_close(server.extras(asked)["moments"], expected)


def test_negative_squares_of_a_client_that_lies_count_as_zero():
    server_side = CommonAdam().server_side(Layout(("w",), ((2,),)), 1)
    update = Bench(plain()).run(CommonAdam(**STEPS, max_steps=1), shard())
    update.extras["moments"] = torch.tensor([-5.0, 3.0])
    server_side.learn(update)
    server_side.finish()
    assert server_side.memory["moments"].tolist() == pytest.approx([0.0, 3.0])
