import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import ConfigError, PartitionError, numpy_stream
from fedpace.data import Practical, load

from ..helpers import on_disk, toy
from .helpers import counts, shares

seeds = st.integers(0, 2**32)


@given(
    seed=seeds,
    labels=st.lists(st.integers(0, 9), min_size=200, max_size=600),
    clients=st.integers(1, 8),
    alpha=st.sampled_from([0.3, 1.0, 1e100]),
)
@settings(max_examples=60, deadline=None)
def test_who_holds_an_equal_part_gets_no_further_class(seed, labels, clients, alpha):
    examples = toy(labels, classes=12)
    found = counts(
        examples, Practical(clients=clients, alpha=alpha, min_size=10).assign(examples, numpy_stream(seed)).train
    )
    before = np.cumsum(found, axis=1) - found
    assert not found[before >= len(labels) / clients].any()
    assert found.sum() == len(labels)


@pytest.mark.parametrize(("min_size", "enough"), [(40, 40), (10**6, 60)])
def test_every_client_has_min_size_or_half_of_an_equal_part(min_size, enough):
    examples = toy(np.arange(600) % 10)
    for seed in range(20):
        hands = Practical(clients=5, alpha=0.1, min_size=min_size).assign(examples, numpy_stream(seed)).train
        assert min(map(len, hands)) >= enough


def test_the_last_client_gets_the_rest_of_each_class():
    """PFLlib's way of rounding: one example of classes of which it hardly has a share."""
    examples = toy(np.arange(6000) % 10)
    deals = [Practical(clients=20).assign(examples, numpy_stream(seed)).train for seed in range(20)]
    found = np.mean([counts(examples, hands) > 0 for hands in deals], axis=0).sum(axis=1)
    assert found[-1] > found[:-1].max() + 2


def test_skew_falls_as_alpha_grows():
    examples = toy(np.arange(6000) % 10)
    largest = [
        counts(examples, Practical(clients=10, alpha=alpha).assign(examples, numpy_stream(0)).train).max(axis=1).mean()
        for alpha in (0.05, 0.5, 5, 500)
    ]
    assert largest == sorted(largest, reverse=True)


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_small_alpha_is_near_whole_classes(seed):
    examples = toy(np.arange(2000) % 100)
    hands = Practical(clients=5, alpha=1e-3).assign(examples, numpy_stream(seed)).train
    assert shares(examples, hands).max(axis=0).mean() > 0.95


@pytest.mark.parametrize("alpha", [1e-3, 5e-324])
def test_it_gives_up_clearly(alpha):
    with pytest.raises(PartitionError, match=rf"500 deals left a client of 20 .* alpha={alpha}; use fewer clients"):
        Practical(clients=20, alpha=alpha).assign(toy(np.arange(2000) % 5), numpy_stream(0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 0}, "alpha: input should be greater than 0, found 0"),
        ({"min_size": 1}, "min_size: input should be greater than or equal to 2, found 1"),
        ({"test_share": 1}, "test_share: input should be less than 1, found 1"),
        ({"clients": 500}, "500 clients with at least 4 examples each need 2000 examples, found 1797"),
    ],
)
def test_a_wrong_parameter_is_one_line(parameters, message):
    with pytest.raises((ConfigError, PartitionError), match=f"partition 'practical': {message}") as caught:
        load("digits").partition("practical", **parameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [on_disk("cifar10")])
def test_the_twenty_clients_of_confree(real_data, name):
    federation = load(name).partition("practical", clients=20, alpha=0.1, seed=1)
    sizes = [len(own) + len(test) for own, test in zip(federation.clients, federation.client_tests, strict=True)]
    assert sum(sizes) == 60_000
    assert min(sizes) >= 40
    assert max(sizes) < 3000 + 6000
    assert [len(own) for own in federation.clients] == [int(0.75 * size) for size in sizes]
    assert np.sort((federation.counts() > 0).sum(axis=1))[10] <= 5  # half of the clients see few of ten classes
