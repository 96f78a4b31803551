"""Which examples a client sees, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.client import Gradient
from fedpace.methods import LocalSGD

from .helpers import Bench, Recorder, plain, shard


def asked(size, seed=7, **parameters):
    recorder = Recorder(shard(size))
    for _ in LocalSGD(**parameters).batches(recorder, Bench(plain()).context(seed)):
        pass
    return recorder.asked


@given(
    size=st.integers(3, 60),
    epochs=st.integers(1, 4),
    batch=st.integers(1, 70),
    max_steps=st.none() | st.integers(1, 20),
)
def test_every_pass_deals_distinct_examples_in_full_batches(size, epochs, batch, max_steps):
    batches = asked(size, epochs=epochs, batch=batch, max_steps=max_steps)
    per_epoch = max(size // batch, 1)
    assert len(batches) == min(epochs * per_epoch, max_steps or 10**9)
    assert {len(b) for b in batches} == {min(batch, size)}
    for start in range(0, len(batches), per_epoch):
        one_pass = [i for b in batches[start : start + per_epoch] for i in b]
        assert len(set(one_pass)) == len(one_pass)
        assert set(one_pass) <= set(range(size))


def test_an_incomplete_batch_is_dropped_unless_it_is_the_only_one():
    assert [len(b) for b in asked(11, epochs=1, batch=4)] == [4, 4]
    assert [len(b) for b in asked(3, epochs=2, batch=4)] == [3, 3]


def test_max_steps_caps_in_the_middle_of_a_pass():
    assert asked(40, epochs=3, batch=8, max_steps=7) == asked(40, epochs=3, batch=8, max_steps=None)[:7]


def test_passes_are_shuffled_anew():
    first, second = asked(20, epochs=2, batch=20)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert first != sorted(first)


def test_the_seed_fixes_the_order():
    assert asked(20, seed=1, batch=5) == asked(20, seed=1, batch=5)
    assert asked(20, seed=1, batch=5) != asked(20, seed=2, batch=5)


def test_gradients_see_the_batches_that_training_would():
    context = Bench(plain()).context()
    recorder = Recorder(shard(20))
    for work in (LocalSGD(batch=6), Gradient(batch=6)):
        list(work.batches(recorder, context))
    half = len(recorder.asked) // 2
    assert recorder.asked[:half] == recorder.asked[half:]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"max_steps": 0}, {"lr": 0.0}, {"momentum": 1.0}])
def test_values_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LocalSGD(**wrong)
