"""The gradient at fixed parameters."""

import pytest
import torch

from fedpace.client import Gradient

from .helpers import Bench, mean_gradient, normed, plain, shard


@pytest.mark.parametrize("make", [plain, normed])
def test_is_minus_autograds_mean_gradient(make):
    bench, data = Bench(make()), shard(44)
    work = Gradient(epochs=2, batch=8)
    update = bench.run(work, data)
    batches = list(work.batches(data, bench.context()))
    assert len(batches) == 10
    expected = mean_gradient(bench.at(bench.vector), batches)
    torch.testing.assert_close(update.vector, -expected, rtol=0, atol=1e-6)
    assert (update.client, update.examples) == (0, 44)


def test_no_step_is_taken_and_no_statistics_are_sent():
    bench = Bench(normed())
    vector, buffers = bench.vector.clone(), bench.buffers.clone()
    update = bench.run(Gradient(batch=8), shard())
    assert update.buffers is None
    assert torch.equal(bench.vector, vector)
    assert torch.equal(bench.model.vector, vector)
    assert torch.equal(bench.buffers.floats, buffers.floats)
    assert torch.equal(bench.buffers.integers, buffers.integers)


def test_max_steps_caps_the_batches_averaged():
    bench, data = Bench(plain()), shard(40)
    update = bench.run(Gradient(batch=10, max_steps=2), data)
    batches = list(Gradient(batch=10, max_steps=None).batches(data, bench.context()))
    assert len(batches) == 8
    torch.testing.assert_close(update.vector, -mean_gradient(bench.at(bench.vector), batches[:2]), rtol=0, atol=1e-6)


def test_loss_is_the_mean_over_batches():
    bench, data = Bench(plain()), shard(40)
    work = Gradient(epochs=1, batch=10)
    losses = [
        torch.nn.functional.cross_entropy(bench.module(inputs), labels).item()
        for inputs, labels in work.batches(data, bench.context())
    ]
    assert bench.run(work, data).metrics["loss"] == pytest.approx(sum(losses) / 4, abs=1e-6)
