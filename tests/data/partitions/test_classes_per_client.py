import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import PartitionError, numpy_stream
from fedpace.data import load
from fedpace.data.partitions import ClassesPerClient

from ..helpers import toy
from .helpers import counts

seeds = st.integers(0, 2**32)


@given(seed=seeds, clients=st.integers(10, 25), k=st.integers(1, 10))
@settings(max_examples=30, deadline=None)
def test_each_client_has_k_classes_and_the_first_is_its_own(seed, clients, k):
    examples = toy(np.arange(1000) % 10)
    found = counts(
        examples, ClassesPerClient(clients=clients, classes_per_client=k).assign(examples, numpy_stream(seed)).train
    )
    assert ((found > 0).sum(axis=1) == k).all()
    assert all(found[client, client % 10] > 0 for client in range(clients))


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_a_class_is_split_equally_among_its_owners(seed):
    examples = toy(np.arange(1003) % 10)
    for column in counts(examples, ClassesPerClient(clients=12).assign(examples, numpy_stream(seed)).train).T:
        owned = column[column > 0]
        assert owned.max() - owned.min() <= 1


def test_one_class_per_client():
    examples = toy(np.arange(100) % 5)
    found = counts(examples, ClassesPerClient(clients=5, classes_per_client=1).assign(examples, numpy_stream(0)).train)
    assert np.array_equal(found, 20 * np.eye(5))


def test_all_classes_per_client_are_equal_shares():
    examples = toy(np.arange(120) % 5)
    found = counts(examples, ClassesPerClient(clients=4, classes_per_client=5).assign(examples, numpy_stream(0)).train)
    assert (found == 6).all()


def test_other_seeds_give_other_classes():
    examples = toy(np.arange(1000) % 10)
    one, two = (counts(examples, ClassesPerClient().assign(examples, numpy_stream(seed)).train) for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_what_does_not_divide_does_not_always_go_to_the_first_clients():
    examples = toy(np.arange(500) % 100)  # five examples of a class, four owners
    hands = ClassesPerClient(clients=4, classes_per_client=100).assign(examples, numpy_stream(0)).train
    assert max(map(len, hands)) < 150  # the first client would have 200


@given(seed=seeds, clients=st.integers(1, 4), k=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_too_few_clients_for_the_classes_are_always_an_error(seed, clients, k):
    examples = toy(np.arange(1000) % 10)
    with pytest.raises(PartitionError, match="no client owns class"):
        ClassesPerClient(clients=clients, classes_per_client=k).assign(examples, numpy_stream(seed))


@pytest.mark.parametrize("seed", [1, 4, 7])
def test_a_class_that_the_draw_leaves_without_owner_is_named(seed):
    with pytest.raises(
        PartitionError, match=r"owns class 2; use more clients \(with 3 every .* or more than 2 classes"
    ):
        ClassesPerClient(clients=2).assign(toy(np.arange(90) % 3), numpy_stream(seed))


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_fewer_clients_than_classes_may_own_all_of_them(seed):
    hands = ClassesPerClient(clients=2).assign(toy(np.arange(90) % 3), numpy_stream(seed)).train
    assert sorted(np.concatenate(hands)) == list(range(90))


def test_classes_without_examples_are_owned_by_nobody():
    examples = toy(np.array([1, 4, 7] * 20), classes=10)
    found = counts(examples, ClassesPerClient(clients=3, classes_per_client=1).assign(examples, numpy_stream(0)).train)
    assert found[:, [1, 4, 7]].tolist() == [[20, 0, 0], [0, 20, 0], [0, 0, 20]]
    with pytest.raises(PartitionError, match="4 classes per client are more than the 3 that the data have; use fewer"):
        ClassesPerClient(clients=3, classes_per_client=4).assign(examples, numpy_stream(0))


def test_of_many_classes_without_owner_the_first_are_named():
    examples = toy(np.arange(1000) % 100)
    with pytest.raises(PartitionError, match=r"no client owns classes 2, 3, 4, 5, 6 and 93 more; use more clients"):
        ClassesPerClient(clients=2, classes_per_client=1).assign(examples, numpy_stream(0))


def test_on_digits():
    federation = load("digits").partition("classes_per_client", clients=10, classes_per_client=3)
    assert ((federation.counts() > 0).sum(axis=1) == 3).all()
    assert federation.counts().sum() == 1438
