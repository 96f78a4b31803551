import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpace.core import ConfigError, PartitionError, numpy_stream
from fedpace.data import Pathological, load

from ..helpers import on_disk, toy
from .helpers import counts

SIZES = ("balanced", "unbalanced")
seeds = st.integers(0, 2**32)


def dealt(examples, clients, k, sizes="balanced", seed=0):
    partition = Pathological(clients=clients, classes_per_client=k, sizes=sizes)
    return counts(examples, partition.assign(examples, numpy_stream(seed)).train)


@pytest.mark.parametrize("sizes", SIZES)
@given(seed=seeds, classes=st.integers(1, 30), clients=st.integers(1, 25), k=st.integers(1, 30))
@settings(max_examples=80, deadline=None)
def test_every_class_has_owners_and_no_client_more_than_k_classes(sizes, seed, classes, clients, k):
    assume(k <= classes <= clients * k)
    examples = toy(np.arange(50 * classes) % classes)
    found = dealt(examples, clients, k, sizes, seed)
    assert (found.sum(axis=0) == 50).all()
    owned = (found > 0).sum(axis=1)
    assert owned.min() >= 1
    assert owned.max() <= k
    assert (found > 0).sum(axis=0).max() <= -(-clients * k // classes)


@pytest.mark.parametrize(
    ("classes", "clients", "k", "group"), [(10, 20, 2, 4), (100, 20, 10, 2), (200, 20, 20, 2), (100, 60, 10, 6)]
)
def test_consecutive_clients_hold_the_same_classes(classes, clients, k, group):
    """The settings of ConFREE; each class has as many owners as a group has clients."""
    found = dealt(toy(np.arange(60 * classes) % classes), clients, k) > 0
    expected = np.kron(np.eye(clients // group), np.ones((group, k))).astype(bool)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("sizes", SIZES)
def test_of_flowers102_the_last_classes_have_one_owner_and_none_is_dropped(sizes):
    found = dealt(toy(np.arange(80 * 102) % 102), 20, 10, sizes) > 0
    assert found.sum(axis=0).tolist() == [2] * 98 + [1] * 4
    assert (found.sum(axis=1) == 10).all()


def test_balanced_shares_are_equal():
    found = dealt(toy(np.arange(1030) % 10), 20, 2)
    assert set(found[found > 0]) == {25, 26}


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_unbalanced_shares_are_a_tenth_to_all_of_an_equal_one_and_the_last_owner_has_the_rest(seed):
    found = dealt(toy(np.arange(4000) % 10), 20, 2, "unbalanced", seed)
    for group in range(5):
        *others, last = found[4 * group : 4 * group + 4, 2 * group : 2 * group + 2]
        assert np.min(others) >= 10
        assert np.max(others) < 100
        assert min(last) > 100


@pytest.mark.parametrize(
    ("examples", "clients", "classes", "low", "high"),
    [
        (1000, 10, 4, 10, 50),  # 40 / 4 is more than a tenth of 50
        (400, 10, 4, 5, 20),  # each client would have 40 examples: half of them, divided by 4 classes
        (4000, 20, 10, 10, 100),  # a tenth of 100 is more than 40 / 10
        (6, 3, 2, 1, 2),  # nothing is left to draw
    ],
)
def test_unbalanced_shares_have_pfllibs_lower_bound(examples, clients, classes, low, high):
    pool = toy(np.arange(examples) % classes)
    drawn = set()
    for seed in range(60):
        found = dealt(pool, clients, 2, "unbalanced", seed)
        for column in found.T:
            drawn |= set(column[column > 0][:-1].tolist())
    assert (min(drawn), max(drawn)) == (low, high - 1)


def test_a_lower_bound_above_an_equal_share_makes_nearly_equal_parts():
    """PFLlib draws from an empty range there, which is an error."""
    found = dealt(toy(np.repeat([0, 1], [8, 392])), 10, 2, "unbalanced")
    assert found[:, 0].tolist() == [1] * 8 + [0, 0]
    assert found[:, 1].sum() == 392
    found = dealt(toy(np.repeat([0, 1], [100, 3900])), 10, 2, "unbalanced")
    assert found[:, 0].tolist() == [9] * 9 + [19]


def test_unbalanced_sizes_depend_on_the_seed_and_owners_do_not():
    one, same, other = (dealt(toy(np.arange(4000) % 10), 20, 2, "unbalanced", seed) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.array_equal(one > 0, other > 0)


@pytest.mark.parametrize("sizes", SIZES)
@given(seed=seeds, labels=st.lists(st.integers(0, 7), min_size=20, max_size=60), clients=st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_classes_with_fewer_examples_than_owners_are_dealt_too(sizes, seed, labels, clients):
    examples = toy(labels, classes=9)
    k = len(set(labels))
    assume(len(labels) >= clients * k)
    assert dealt(examples, clients, k, sizes, seed).sum() == len(labels)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"clients": 4}, "4 clients × 2 classes are too few for 10 classes; use more clients or more classes per"),
        ({"classes_per_client": 11}, "11 classes per client are more than the 10 that the data have; use fewer"),
        ({"classes_per_client": 0}, "classes_per_client: input should be greater than or equal to 1, found 0"),
        ({"sizes": "equal"}, "sizes: input should be 'balanced' or 'unbalanced', found 'equal'"),
        ({"clients": 900}, "900 clients with at least 2 examples each need 1800 examples, found 1797"),
    ],
)
def test_a_wrong_parameter_is_one_line(parameters, message):
    with pytest.raises((ConfigError, PartitionError), match=f"partition 'pathological': {message}") as caught:
        load("digits").partition("pathological", **parameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [on_disk("cifar10")])
def test_the_twenty_clients_of_confree(real_data, name):
    federation = load(name).partition("pathological", clients=20, classes_per_client=2, seed=1)
    assert sum(map(len, (*federation.clients, *federation.client_tests))) == 60_000
    assert ((federation.counts() > 0).sum(axis=1) == 2).all()
