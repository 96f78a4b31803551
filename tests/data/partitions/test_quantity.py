import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from fedpace.core import PartitionError, numpy_stream
from fedpace.data import load
from fedpace.data.partitions import Quantity

from ..helpers import toy
from .helpers import counts

seeds = st.integers(0, 2**32)


def sizes(partition, examples, seed=0):
    return np.array([len(hand) for hand in partition.assign(toy(np.arange(examples) % 2), numpy_stream(seed)).train])


@given(seed=seeds, clients=st.integers(1, 10), beta=st.sampled_from([0.01, 0.5, 5.0]), min_size=st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_every_client_has_min_size(seed, clients, beta, min_size):
    found = sizes(Quantity(clients=clients, beta=beta, min_size=min_size), 10_000, seed)
    assert found.min() >= min_size
    assert found.sum() == 10_000


def test_sizes_differ_but_labels_do_not():
    examples = toy(np.arange(50_000) % 5)
    found = counts(examples, Quantity(clients=10).assign(examples, numpy_stream(0)).train)
    totals = found.sum(axis=1)
    assert totals.max() > 10 * totals.min()
    large = totals > 1000
    assert np.abs(found[large] / totals[large, None] - 0.2).max() < 0.05


def test_large_beta_is_near_equal():
    assert np.abs(sizes(Quantity(clients=10, beta=1e6), 10_000) / 1000 - 1).max() < 0.02


def test_small_beta_is_near_one_client():
    assert sizes(Quantity(clients=10, beta=1e-3), 10_000).max() > 5000


def test_shares_are_those_of_plain_draws_that_have_enough():
    partition, examples = Quantity(clients=4, beta=0.5, min_size=10), 200
    plain = numpy_stream(0).dirichlet(np.full(4, 0.5), size=40_000)
    plain = plain[plain.min(axis=1) * examples >= 10]
    rng = numpy_stream(1)
    ours = np.array([partition._shares(examples, rng) for _ in range(5000)])
    for summary in (lambda p: p[:, 0], lambda p: p.min(axis=1), lambda p: p.max(axis=1)):
        assert ks_2samp(summary(plain), summary(ours)).pvalue > 0.01


@pytest.mark.parametrize("seed", range(5))
def test_the_hundred_clients_of_gma_find_a_split(seed):
    found = sizes(Quantity(clients=100, beta=0.5), 50_000, seed)
    assert len(found) == 100
    assert found.min() >= 10


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"clients": 9},
            "1000 draws left a client of 9 with fewer than 10 of 100 examples at beta=0.5; use fewer clients",
        ),
        ({"clients": 3, "beta": 1e-300}, "at beta=1e-300; use fewer clients, a larger beta or a smaller min_size"),
        ({"clients": 11}, "11 clients with at least 10 examples each need 110 examples, found 100"),
    ],
)
def test_it_gives_up_clearly(parameters, message):
    with pytest.raises(PartitionError, match=message):
        sizes(Quantity(**parameters), 100)


def test_on_digits():
    federation = load("digits").partition("quantity", clients=10)
    assert federation.counts().sum() == 1438
    assert federation.counts().sum(axis=1).min() >= 10
