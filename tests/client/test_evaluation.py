"""Counting correct answers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedpace.client import Evaluation
from fedpace.methods import LocalSGD

from .helpers import CLASSES, FEATURES, Bench, Recorder, normed, plain, same, shard

DATA = shard(600)
BENCH = Bench(plain())


def by_hand(module, data, positions):
    inputs, labels = data.batch(torch.tensor(positions))
    with torch.no_grad():
        outputs = module.eval()(inputs)
    return int((outputs.argmax(1) == labels).sum()), float(F.cross_entropy(outputs, labels, reduction="sum"))


@given(start=st.integers(0, 599), length=st.integers(1, 900), step=st.integers(1, 50))
def test_counts_the_positions_from_start_to_stop(start, length, step):
    update = BENCH.run(Evaluation(start=start, stop=start + length, step=step), DATA)
    positions = list(range(start, min(start + length, 600), step))
    correct, loss = by_hand(BENCH.module, DATA, positions)
    assert update.vector is None
    assert update.examples == len(positions)
    assert update.metrics["correct"] == correct
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)


def test_chunks_add_up_and_never_exceed_the_batch():
    recorder = Recorder(DATA)
    whole = BENCH.run(Evaluation(stop=250), recorder)
    assert [len(asked) for asked in recorder.asked] == [100, 100, 50]
    parts = [BENCH.run(Evaluation(start=s, stop=s + 50), DATA) for s in range(0, 250, 50)]
    assert whole.metrics["correct"] == sum(part.metrics["correct"] for part in parts)
    assert whole.examples == sum(part.examples for part in parts) == 250


def test_is_in_evaluation_mode():
    """Running statistics far from the batch's, and dropout of nearly everything: training mode would show."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.Dropout(0.95), nn.Linear(6, CLASSES))
    module[1].running_mean.fill_(0.7)
    module[1].running_var.fill_(4.0)
    bench, data = Bench(module), shard(60)
    before = bench.buffers.clone()
    update = bench.run(Evaluation(stop=60), data)
    correct, loss = by_hand(bench.module, data, list(range(60)))
    assert update.metrics["correct"] == correct
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert torch.equal(bench.model.buffers.floats, before.floats)


def test_training_after_evaluation_is_in_training_mode():
    bench, data = Bench(normed()), shard()
    expected = bench.run(LocalSGD(batch=8), data)
    bench.run(Evaluation(stop=40), data)
    assert same(expected, bench.run(LocalSGD(batch=8), data))


def test_a_perfect_and_a_useless_model():
    inputs, labels = DATA.batch(slice(None))
    weights = torch.linalg.lstsq(inputs, F.one_hot(labels, CLASSES).float()).solution.T
    bench = Bench(plain())
    for sign in (1, -1):
        bench.vector = torch.cat([sign * weights.flatten(), torch.zeros(CLASSES)])
        share = bench.run(Evaluation(stop=600), DATA).metrics["correct"] / 600
        assert (share > 0.8) if sign == 1 else (share < 0.2)


def test_no_positions_give_no_examples():
    update = BENCH.run(Evaluation(start=600, stop=700), DATA)
    assert (update.examples, update.metrics) == (0, {})


def test_a_start_behind_the_shard_gives_no_examples():
    update = BENCH.run(Evaluation(start=700, stop=800), DATA)
    assert (update.examples, update.metrics) == (0, {})
