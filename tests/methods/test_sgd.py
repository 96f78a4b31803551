"""Local training is an ordinary torch loop, whoever used the resident model before."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fedpace.client import Evaluation, Gradient, Probe
from fedpace.methods import LocalSGD
from tests.client.helpers import Bench, flat, normed, plain, same, shard, shards, statistics

OPTIMIZERS = {
    "adam": (
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 1e-2},
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-2, foreach=False),
    ),
    "sgd": (
        {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0},
        lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    ),
    "momentum": (
        {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=False),
    ),
}


def by_hand(module, batches, optimizer):
    """The module after a plain loop, and the mean of its losses."""
    module = copy.deepcopy(module).train()
    optimizer = optimizer(module.parameters())
    losses = []
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return module, sum(losses) / len(losses)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("make", [plain, normed])
def test_equals_a_hand_written_loop(name, make):
    parameters, optimizer = OPTIMIZERS[name]
    work = LocalSGD(epochs=3, batch=8, **parameters)
    bench, data = Bench(make()), shard(44)
    update = bench.run(work, data)
    module, loss = by_hand(bench.module, work.batches(data, bench.context()), optimizer)
    expected = flat(module) - flat(bench.module)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(update.vector, expected, rtol=0, atol=1e-6)
    assert update.metrics["loss"] == pytest.approx(loss, abs=1e-6)
    assert (update.client, update.examples, update.failure) == (0, 44, None)
    if make is normed:
        floats, integers = statistics(module)
        torch.testing.assert_close(update.buffers.floats, floats, rtol=0, atol=1e-6)
        assert update.buffers.integers.tolist() == integers.tolist() == [15]  # 3 passes of 5 full batches


def test_the_defaults_are_fedpaces():
    assert LocalSGD().model_dump() == {
        "name": "sgd",
        "epochs": 2,
        "batch": 32,
        "max_steps": 100,
        "optimizer": "adam",
        "lr": 1e-3,
        "momentum": 0.0,
        "weight_decay": 1e-4,
        "rate": {"name": "constant"},
        "options": {},
        "clip": None,
        "accumulate": 1,
        "precision": "float32",
        "private": None,
    }


def test_max_steps_caps_training():
    bench, data = Bench(plain()), shard(40)
    capped = bench.run(LocalSGD(batch=10, max_steps=3), data)
    module, _ = by_hand(
        bench.module,
        list(LocalSGD(batch=10, max_steps=None).batches(data, bench.context()))[:3],
        lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=1e-4),
    )
    torch.testing.assert_close(capped.vector, flat(module) - flat(bench.module), rtol=0, atol=1e-6)


def test_optimizer_state_is_new_in_every_round():
    bench, data = Bench(plain()), shard()
    work = LocalSGD(optimizer="sgd", momentum=0.9, lr=0.1, batch=8)
    assert same(bench.run(work, data), bench.run(work, data))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_pace_scales_every_coordinate_of_a_step(optimizer):
    bench, data = Bench(plain()), shard()
    work = LocalSGD(optimizer=optimizer, lr=0.1, batch=8, max_steps=1)
    pace = torch.linspace(0, 2, len(bench.vector))
    torch.testing.assert_close(bench.run(work, data, extras={"pace": pace}).vector, bench.run(work, data).vector * pace)


def test_pace_slows_adam_in_every_step():
    bench, data = Bench(plain()), shard()
    work = LocalSGD(lr=0.1, batch=8)
    pace = torch.ones(len(bench.vector))
    torch.testing.assert_close(bench.run(work, data, extras={"pace": pace}).vector, bench.run(work, data).vector)
    pace[0] = 0
    update, free = bench.run(work, data, extras={"pace": pace}).vector, bench.run(work, data).vector
    assert update[0] == 0
    assert not torch.allclose(update[1:], free[1:])  # the others adapt to what stands still


def test_the_servers_vector_and_buffers_are_left_alone():
    bench = Bench(normed())
    vector, buffers = bench.vector.clone(), bench.buffers.clone()
    bench.run(LocalSGD(batch=8), shard())
    assert torch.equal(bench.vector, vector)
    assert torch.equal(bench.buffers.floats, buffers.floats)
    assert torch.equal(bench.buffers.integers, buffers.integers)


@pytest.mark.parametrize(
    "work",
    [LocalSGD(batch=8), Gradient(batch=8), Probe(path=(5,), batch=8), Evaluation(stop=30)],
    ids=lambda work: work.name,
)
def test_nothing_leaks_from_one_task_into_the_next(work):
    """A, then others with other data, seeds and modes, then A again; and A on a worker of its own."""
    bench = Bench(normed())
    one, two = shards(40, 33)
    first = bench.run(work, one)
    for other in (Evaluation(stop=20), Probe(path=(1, 2), batch=4), Gradient(batch=5), LocalSGD(batch=3)):
        bench.run(other, two, seed=99, client=1)
    bench.model.vector.fill_(float("nan"))  # not even a broken model survives
    assert same(first, bench.run(work, one))
    assert same(first, Bench(normed()).run(work, one))
    if work.name != "evaluation":
        assert not same(first, bench.run(work, one, seed=8))


def test_global_random_numbers_play_no_part():
    bench, data = Bench(normed()), shard()
    torch.manual_seed(1)
    first = bench.run(LocalSGD(batch=8), data)
    torch.manual_seed(2)
    assert same(first, bench.run(LocalSGD(batch=8), data))


def test_a_client_with_fewer_examples_than_a_batch_still_trains():
    update = Bench(plain()).run(LocalSGD(batch=32), shard(4))
    assert update.vector.abs().max() > 0
    assert update.examples == 4
