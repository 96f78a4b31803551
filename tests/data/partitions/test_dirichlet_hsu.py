import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import numpy_stream
from fedpace.data import load
from fedpace.data.partitions import DirichletHsu
from fedpace.data.partitions.dirichlet_hsu import _draw

from ..helpers import toy
from .helpers import counts

seeds = st.integers(0, 2**32)


@given(
    seed=seeds,
    labels=st.lists(st.integers(0, 4), min_size=7, max_size=150),
    clients=st.integers(1, 7),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
)
@settings(max_examples=100, deadline=None)
def test_sizes_are_equal_and_everything_is_dealt_at_any_alpha(seed, labels, clients, alpha):
    hands = DirichletHsu(clients=clients, alpha=alpha).assign(toy(labels, classes=6), numpy_stream(seed)).train
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert sorted(np.concatenate(hands)) == list(range(len(labels)))


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_small_alpha_is_near_one_class_per_client(seed):
    examples = toy(np.arange(2000) % 10)  # two clients use up a class
    found = counts(examples, DirichletHsu(clients=20, alpha=1e-3).assign(examples, numpy_stream(seed)).train)
    assert (found.max(axis=1) / 100).mean() > 0.95


def test_skew_falls_as_alpha_grows():
    examples = toy(np.arange(4000) % 10)
    largest = [
        counts(examples, DirichletHsu(clients=10, alpha=alpha).assign(examples, numpy_stream(0)).train)
        .max(axis=1)
        .mean()
        for alpha in (0.1, 1, 10, 100, 1e6)
    ]
    assert largest == sorted(largest, reverse=True)
    assert largest[-1] < 60  # 40 if it were exact


def test_the_prior_is_the_share_of_each_class():
    examples = toy(np.repeat([0, 1, 2], [6000, 3000, 1000]))
    found = counts(examples, DirichletHsu(clients=5, alpha=1e6).assign(examples, numpy_stream(0)).train)
    assert np.abs(found / 2000 - [0.6, 0.3, 0.1]).max() < 0.05


def test_the_first_client_follows_its_shares():
    """While no class is used up, the number of examples of a class is Dirichlet-multinomial."""
    alpha, quota = np.array([1.0, 2.0, 3.0]), 20
    plenty = np.full(3, 10**6)
    drawn = np.array([_draw(quota, plenty, alpha, numpy_stream(seed)) for seed in range(4000)])
    mean = alpha / alpha.sum()
    variance = quota * mean * (1 - mean) * (quota + alpha.sum()) / (1 + alpha.sum())
    np.testing.assert_allclose(drawn.mean(axis=0), quota * mean, atol=0.3)
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.1)


def test_a_class_that_is_used_up_leaves_the_ratio_of_the_others():
    left, concentration = np.array([5, 10**6, 10**6]), np.array([1e9, 2e9, 1e9])
    drawn = _draw(90_005, left, concentration, numpy_stream(0))
    assert drawn[0] == 5
    assert drawn[1] / drawn[2] == pytest.approx(2, rel=0.05)


def test_on_digits():
    sizes = load("digits").partition("dirichlet_hsu", clients=7, alpha=0.5).counts().sum(axis=1)
    assert sizes.tolist() == [206] * 3 + [205] * 4
