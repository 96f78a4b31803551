"""Test sets of the clients' own, which every partition offers."""

import numpy as np
import pytest

from fedpace.core import ConfigError, PartitionError
from fedpace.data import Data, Examples, load, partitions
from fedpace.experiments import load_config
from fedpace.experiments.run import federate

from .helpers import toy


def domains():
    """Train and test set with domains, so that every partition can deal them."""
    inputs = np.arange(1200, dtype=np.float32)[:, None]
    labels, writers = np.arange(1200) % 10, np.arange(1200) // 10 % 12
    whole = Examples(inputs, labels, tuple("0123456789"), writers, tuple("abcdefghijkl"))
    return Data("domains", whole.take(np.arange(1000)), whole.take(np.arange(1000, 1200)))


def values(*shards):
    """Which examples they are: each has its own value."""
    return np.concatenate([shard.arrays(slice(None))[0][:, 0] for shard in shards])


@pytest.mark.parametrize("name", partitions.names())
def test_train_and_test_set_are_merged_and_each_client_is_split(name):
    federation = domains().partition(name, test_share=0.25, seed=3)
    own, tests = federation.clients, federation.client_tests
    for train, test in zip(own, tests, strict=True):
        assert len(test) == -(-(len(train) + len(test)) // 4)
    held_out = () if np.array_equal(values(federation.test), values(*tests)) else (federation.test,)
    assert bool(held_out) == (name in ("leave_one_domain_out", "writers"))
    assert sorted(values(*own, *tests, *held_out)) == list(range(1200))


@pytest.mark.parametrize("name", partitions.names())
@pytest.mark.parametrize("share", [0, 0.25])
def test_a_limit_deals_a_random_sample(name, share):
    one, same, other, all_of_it, unlimited = (
        domains().partition(name, test_share=share, limit=limit, seed=seed)
        for limit, seed in ((600, 3), (600, 3), (600, 4), (1200, 3), (None, 3))
    )
    used = [np.unique(values(*f.clients, *(f.client_tests or ()), f.test)) for f in (one, same, other)]
    tested = 200 if share == 0 and partitions.get(name).pool == "train" else 0  # the test set is whole
    assert len(used[0]) == 600 + tested
    assert np.array_equal(used[0], used[1])
    assert not np.array_equal(used[0], used[2])
    assert all_of_it.fingerprint() == unlimited.fingerprint()


@pytest.mark.parametrize("name", partitions.names())
def test_same_seed_same_split(name):
    one, same, other = (domains().partition(name, test_share=0.5, seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.parametrize("name", ["practical", "pathological"])
def test_pfllibs_partitions_split_by_default_and_leave_the_test_set_alone_without(name):
    digits = load("digits")
    assert sum(map(len, digits.partition(name).client_tests)) == pytest.approx(1797 / 4, abs=10)
    plain = digits.partition(name, test_share=0)
    assert plain.client_tests is None
    assert plain.test.pool is digits.test
    assert plain.counts().sum() == len(digits.train)


def test_the_split_does_not_follow_the_order_of_the_data():
    federation = Data("toy", toy(np.zeros(1000, int))).partition("iid", clients=1, test_share=0.25)
    assert 300 < values(federation.test).mean() < 700


@pytest.mark.parametrize(("share", "tests"), [(1e-9, 1), (0.25, 1), (0.5, 1), (0.999, 1)])
def test_two_examples_are_one_to_train_and_one_to_test(share, tests):
    federation = Data("toy", toy([0, 1] * 3)).partition("iid", clients=3, test_share=share)
    assert [len(shard) for shard in (*federation.clients, *federation.client_tests)] == [1, 1, 1] + 3 * [tests]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"clients": 4}, PartitionError, "expected 2 examples or more of every client, found a client with 1; use few"),
        ({"test_share": 1}, ConfigError, "partition 'iid': test_share: input should be less than 1, found 1"),
        ({"test_share": -0.1}, ConfigError, "test_share: input should be greater than or equal to 0, found -0.1"),
        ({"test_share": float("nan")}, ConfigError, "test_share: input should be"),
    ],
)
def test_a_split_that_cannot_be_made_is_one_line(parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        Data("toy", toy([0, 1] * 3)).partition("iid", **{"clients": 3, "test_share": 0.25, **parameters})
    assert "\n" not in str(caught.value)


def test_in_a_config_the_share_belongs_to_the_partition_and_enters_the_fingerprint_only_where_it_is_used():
    plain, zero = load_config("fedavg"), load_config("fedavg", {"data.partition.test_share": 0})
    split = load_config("fedavg", {"data.partition.test_share": 0.25})
    assert plain.fingerprint() == zero.fingerprint() != split.fingerprint()
    assert federate(plain).client_tests is None
    assert len(federate(split).test) == sum(map(len, federate(split).client_tests))
