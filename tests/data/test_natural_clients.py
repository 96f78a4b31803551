"""Clients as the user knows them: indices into one data set, or a data set each."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedpace import federate
from fedpace.core import ConfigError, DataError, PartitionError
from fedpace.data import Column, Data, Examples, load
from fedpace.experiments import train

from .helpers import toy, write_parquet


def values(*shards):
    """Which examples they are: each has its own value."""
    return np.concatenate([shard.arrays(slice(None))[0][:, 0] for shard in shards]).tolist()


def ten(test=True):
    return Data("ten", toy([0, 1] * 5), toy([0, 1, 1]) if test else None)


@pytest.mark.parametrize(
    "hands", [[[0, 2, 1], [5]], (np.array([0, 2, 1]), np.array([5])), [torch.tensor([0, 2, 1]), range(5, 6)]]
)
def test_clients_are_lists_of_indices(hands):
    federation = ten().partition(hands)
    assert [values(client) for client in federation.clients] == [[0, 2, 1], [5]]
    assert federation.client_names == ("0", "1")
    assert federation.client_tests is None
    assert federation.test.pool is not federation.clients[0].pool
    assert len(federation.test) == 3
    assert repr(federation).startswith("Federation('ten/given': 2 clients with 4 examples, 3 test examples")


def test_clients_have_names():
    named = ten().partition({"north": [0, 1], "south": [4]})
    assert named.client_names == ("north", "south")
    assert ten().partition([[0, 1], [4]], names=("north", "south")).fingerprint() == named.fingerprint()
    assert ten().partition({"name": [0, 1]}).client_names == ("name",)  # a table has a name that is a text


@pytest.mark.parametrize(("test", "share"), [(True, 0.25), (False, None), (False, 0.25)])
def test_clients_hold_out_a_share_where_it_is_wanted_or_there_is_no_test_set(test, share):
    hands = [[0, 2, 4, 6, 8], [1, 3, 5]]
    federation = ten(test).partition(hands, **({} if share is None else {"test_share": share}))
    for hand, own, held_out in zip(hands, federation.clients, federation.client_tests, strict=True):
        assert sorted(values(own, held_out)) == hand
        assert len(held_out) == -(-len(hand) // (4 if share else 5))
    assert values(federation.test) == ([0, 1, 2] if test else values(*federation.client_tests))


def test_what_is_held_out_depends_on_the_seed():
    one, same, other = (ten().partition([range(10)], test_share=0.5, seed=seed) for seed in (0, 0, 1))
    assert values(*one.client_tests) == values(*same.client_tests) != values(*other.client_tests)


def test_given_clients_may_be_shifted():
    federation = load("digits").partition([range(10), range(10, 20)], shift="coloured")
    assert federation.shape == (3, 8, 8)
    assert federation.clients[0].mechanism != federation.clients[1].mechanism


@pytest.mark.parametrize(
    ("hands", "parameters", "error", "message"),
    [
        ([[0, 1], []], {}, PartitionError, "client '1' has no training examples"),
        ([[0, 10]], {}, PartitionError, "indices out of range: expected 0 to 9, found 0 to 10"),
        ([[0, -1]], {"test_share": 0.5}, PartitionError, "indices out of range: expected 0 to 9, found -1 to 0"),
        ([[0, 1], [1]], {}, PartitionError, "example 1 is used 2 times"),
        ([[0, 0, 1, 2]], {"test_share": 0.5}, PartitionError, "example 0 is used 2 times"),
        ([], {}, PartitionError, "expected at least one client, found none"),
        ([0, 1], {}, PartitionError, "client '0': expected a list of indices into the training examples, found 0"),
        ([[0.5]], {}, PartitionError, "client '0': expected a list of indices"),
        ([[True, False]], {}, PartitionError, "client '0': expected a list of indices"),
        ([[[0], [1, 2]]], {}, PartitionError, "client '0': expected a list of indices"),
        ({"alpha": 0.1}, {}, PartitionError, "client 'alpha': expected a list of indices .*, found 0.1"),
        ([[0], [1]], {"names": ["a"]}, PartitionError, "names: expected another one for each of 2 clients, found a"),
        ([[0], [1]], {"names": ["a", "a"]}, PartitionError, "names: expected another one for each of 2 clients"),
        ({"a": [0]}, {"names": ["b"]}, ConfigError, "found clients that have names"),
        ([[0]], {"test_shares": 0.5}, ConfigError, "unknown parameter 'test_shares' .* did you mean 'test_share'?"),
        ([[0]], {"test_share": 0.5}, PartitionError, "expected 2 examples or more of every client"),
        ([[0, 1]], {"test_share": 1}, PartitionError, "test_share: expected a number from 0 to less than 1, found 1"),
        (
            [[0, 1]],
            {"test_share": "x"},
            PartitionError,
            "expected a number from 0 to less than 1, found 'x'",
        ),
    ],
)
def test_wrong_indices_are_one_line(hands, parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        ten().partition(hands, **parameters)
    assert "\n" not in str(caught.value)


def test_indices_without_any_test_set_are_one_line():
    with pytest.raises(PartitionError, match="'ten/given': expected a test set or a test_share above 0, found neither"):
        ten(test=False).partition([[0, 1]], test_share=0)


def arrays(n, start=0, classes=2):
    return np.arange(start, start + n, dtype=np.float32)[:, None], np.arange(n) % classes


def test_a_data_set_per_client():
    federation = federate({"north": arrays(5), "south": Data("own", toy([0, 1, 0]))}, test=arrays(4))
    assert federation.client_names == ("north", "south")
    assert [values(client) for client in federation.clients] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    assert federation.client_tests is None
    assert values(federation.test) == [0, 1, 2, 3]


def test_clients_in_a_list_may_be_anything_that_can_be_loaded(tmp_path):
    write_parquet(tmp_path / "one" / "train.parquet", [0, 1] * 5)
    images = np.zeros((10, 4, 4), np.uint8)
    torch_data = TensorDataset(torch.tensor(images)[:, None], torch.arange(10) % 2)
    federation = federate([str(tmp_path / "one"), (images, [0, 1] * 5), torch_data], names=("a", "b", "c"))
    assert federation.client_names == ("a", "b", "c")
    assert federation.shape == (1, 4, 4)
    assert [len(client) for client in federation.clients] == [8, 8, 8]
    assert len(federation.test) == 6


def test_training_data_are_not_copied():
    data = load(arrays(5))
    assert federate([data], test=arrays(4)).clients[0].pool.inputs is data.train.inputs


def test_clients_bring_test_sets_and_the_others_hold_out():
    with_test, without = load(arrays(5), test=arrays(3, 100)), load(arrays(5, 10))
    federation = federate([with_test, without])
    assert [len(client) for client in federation.clients] == [5, 4]
    assert [len(test) for test in federation.client_tests] == [3, 1]
    assert values(federation.test) == values(*federation.client_tests)
    assert sorted(values(federation.clients[1], federation.client_tests[1])) == [10, 11, 12, 13, 14]
    everywhere = federate([with_test, without], test=arrays(4))
    assert len(everywhere.client_tests) == 2
    assert len(everywhere.test) == 4
    assert len(federate([with_test, with_test], test_share=0).client_tests) == 2
    assert federate([with_test, without], test=arrays(4), test_share=0).client_tests is None


def test_of_data_with_a_test_set_the_test_set_is_tested():
    assert values(federate([arrays(5)], test=load(arrays(4), test=arrays(2, 50))).test) == [50, 51]


def test_shares_are_held_out_always_alike_or_by_the_seed():
    one, same, other = (federate([arrays(50)], seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_clients_may_lack_classes():
    federation = federate([arrays(4, classes=2), arrays(9, classes=3)], test=(np.zeros((5, 1)), range(5)))
    assert federation.classes == tuple("01234")
    assert federation.counts().tolist() == [[2, 2, 0, 0, 0], [3, 3, 3, 0, 0]]


def test_classes_are_matched_by_name():
    x = np.zeros((3, 1))
    federation = federate([(x, ["cat", "dog", "dog"]), (x, ["fox", "fox", "cat"])], test=(x, ["dog", "ant", "cat"]))
    assert federation.classes == ("cat", "dog", "fox", "ant")
    assert federation.counts().tolist() == [[1, 2, 0, 0], [1, 0, 2, 0]]
    assert federation.test.labels.tolist() == [1, 3, 0]


def test_numbers_and_tokens_need_no_classes():
    numbers = federate([(np.zeros((5, 2)), np.linspace(0, 1, 5))] * 2)
    assert numbers.classes == ()
    assert numbers.test.targets.dtype == np.float32
    text = Examples(np.zeros((5, 4), np.int64), np.zeros((5, 4), np.int64), vocabulary=("a", "b"))
    assert federate([Data("text", text)] * 2).outputs == 2


def test_where_examples_come_from_need_not_agree():
    site = Column(np.zeros(5, int), ("here",))
    one = Examples(arrays(5)[0], arrays(5)[1], ("0", "1"), np.zeros(5, int), ("photo",), {"site": site})
    assert len(federate([Data("one", one), arrays(5)]).test) == 2


def test_natural_clients_can_be_trained():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(20, 3)), rng.integers(0, 2, 20)) for _ in range(2)]
    result = train(federate(clients), model="linear", rounds=1, settings={"executor": "serial"})
    assert 0 <= result.accuracy <= 1


IMAGES = np.zeros((5, 4, 4, 3), np.uint8)
Y = np.arange(5) % 2


@pytest.mark.parametrize(
    ("clients", "parameters", "error", "message"),
    [
        ({}, {}, PartitionError, "'clients': expected at least one client, found none"),
        (
            {"a": arrays(5), "b": (np.zeros((5, 2)), Y)},
            {},
            DataError,
            r"client 'b': expected examples of shape \(1,\), as client 'a' has, found \(2,\)",
        ),
        (
            [(IMAGES, Y), (np.zeros((5, 3, 4, 4)), Y)],
            {},
            DataError,
            "client '1': expected inputs of type uint8, as client '0' has, found float32",
        ),
        (
            [arrays(5), (np.zeros((5, 1)), list("abcab"))],
            {},
            DataError,
            "client '1': expected targets that are numbered classes, as client '0' has, found classes with names",
        ),
        (
            [arrays(5), (np.zeros((5, 1)), np.zeros(5))],
            {},
            DataError,
            r"client '1': expected targets that are numbered classes, .*, found float32 of shape \(\)",
        ),
        ([arrays(5)], {"test": (IMAGES, Y)}, DataError, "the test set: expected examples of shape"),
        ([arrays(5)], {"test_share": 0}, PartitionError, "expected a test set or a test_share above 0, found neither"),
        ([arrays(1)], {}, PartitionError, "expected 2 examples or more of every client"),
        ([arrays(5)], {"names": ["a", "b"]}, PartitionError, "names: expected another one for each of 1 clients"),
        (["nowhere/at/all"], {}, DataError, "nowhere/at/all: no such file or folder"),
    ],
)
def test_clients_that_do_not_fit_are_one_line(clients, parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        federate(clients, **parameters)
    assert "\n" not in str(caught.value)


def test_data_may_be_mapped_once():
    data = ten().mapped(lambda inputs: inputs * 2)
    assert data.train.inputs[:, 0].tolist() == list(range(0, 20, 2))
    assert data.test.inputs[:, 0].tolist() == [0, 2, 4]
    assert ten(test=False).mapped(np.negative).test is None
