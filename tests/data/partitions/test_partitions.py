"""Properties that every partition has, over the registry, and those of each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import ConfigError, PartitionError, numpy_stream
from fedpace.data import Dirichlet, Hands, Iid, LeaveOneDomainOut, Partition, Practical, SortedShards, load, partitions
from fedpace.data.partitions import ClientsPartition, DirichletHsu
from fedpace.data.partitions.dirichlet import largest_remainders, top_up

from ..helpers import toy
from .helpers import shares

labels = st.lists(st.integers(0, 4), min_size=60, max_size=200)
clients = st.integers(1, 6)
seeds = st.integers(0, 2**32)


def make(name, clients, examples):
    """With parameters at which every partition succeeds."""
    wanted = {"alpha": 100.0, "beta": 100.0, "min_size": 2, "classes_per_client": len(set(examples.labels))}
    cls = partitions.get(name)
    if issubclass(cls, ClientsPartition):
        wanted["clients"] = clients
    return cls(**{key: value for key, value in wanted.items() if key in cls.model_fields})


def with_domains(labels):
    return toy(labels, classes=5, domains=np.arange(len(labels)) % 3, domain_names=("x", "y", "z"))


def all_parts(assignment):
    held_out = [] if assignment.held_out is None else [assignment.held_out]
    return [*assignment.train, *held_out]


@pytest.mark.parametrize("name", partitions.names())
@given(labels=labels, clients=clients, seed=seeds)
@settings(max_examples=30, deadline=None)
def test_every_example_is_used_exactly_once(name, labels, clients, seed):
    examples = with_domains(labels)
    assignment = make(name, clients, examples).assign(examples, numpy_stream(seed))
    assert sorted(np.concatenate(all_parts(assignment))) == list(range(len(labels)))
    assert min(map(len, all_parts(assignment))) > 0


@pytest.mark.parametrize("name", partitions.names())
def test_same_stream_same_split(name):
    examples = with_domains(np.arange(300) % 5)
    one, two = (all_parts(make(name, 3, examples).assign(examples, numpy_stream(7))) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", partitions.names())
def test_every_partition_succeeds_on_ten_classes_with_its_defaults(name):
    assert len(load("digit_domains").partition(name)) >= 3


@pytest.mark.parametrize(
    "name", [name for name in partitions.names() if issubclass(partitions.get(name), ClientsPartition)]
)
def test_more_clients_than_examples_is_an_error(name):
    examples = with_domains(np.arange(19) % 5)
    with pytest.raises(PartitionError, match=r"20 clients .* found 19; use fewer clients"):
        make(name, 20, examples).assign(examples, numpy_stream(0))


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        (name, key)
        for name in partitions.names()
        for key in ("alpha", "beta")
        if key in partitions.get(name).model_fields
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_concentration_is_positive_and_finite(name, parameter, value):
    with pytest.raises(ConfigError, match=f"partition '{name}': {parameter}: input should be"):
        load("digits").partition(name, **{parameter: value})


@pytest.mark.parametrize("name", partitions.names())
def test_every_partition_says_what_its_parameters_are(name):
    cls = partitions.get(name)
    described = cls.__doc__.split("Parameters:")[1]
    assert all(f"``{field}``" in described for field in cls.model_fields if field not in Partition.model_fields)


def test_iid_sizes_are_equal():
    sizes = [len(hand) for hand in Iid(clients=4).assign(toy(np.arange(10) % 2), numpy_stream(0)).train]
    assert sorted(sizes) == [2, 2, 3, 3]


@pytest.mark.parametrize("cls", [Dirichlet, DirichletHsu, Practical])
def test_large_alpha_is_near_uniform(cls):
    examples = toy(np.arange(40000) % 5)
    hands = cls(clients=4, alpha=1e6).assign(examples, numpy_stream(1)).train
    # PFLlib's cap leaves the last class to those who have room, so it is judged on the classes before.
    assert np.abs(shares(examples, hands)[:, :4] - 0.25).max() < 0.02


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_small_alpha_gives_each_class_to_one_client(seed):
    examples = toy(np.arange(2000) % 10)
    hands = Dirichlet(clients=5, alpha=1e-3, min_size=1).assign(examples, numpy_stream(seed)).train
    assert shares(examples, hands).max(axis=0).mean() > 0.8


@pytest.mark.parametrize("cls", [Dirichlet, DirichletHsu])
@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e100])
def test_an_extreme_alpha_still_gives_finite_shares(cls, alpha):
    hands = cls(clients=5, alpha=alpha).assign(toy(np.arange(100) % 4, classes=6), numpy_stream(0)).train
    assert sum(map(len, hands)) == 100


@given(seed=seeds, min_size=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_dirichlet_tops_up_to_min_size(seed, min_size):
    hands = (
        Dirichlet(clients=5, alpha=0.01, min_size=min_size).assign(toy(np.arange(100) % 2), numpy_stream(seed)).train
    )
    assert min(map(len, hands)) >= min_size


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), seeds)
@settings(max_examples=60, deadline=None)
def test_the_largest_client_gives_to_the_smallest_until_all_have_enough(sizes, seed):
    least = sum(sizes) // len(sizes)
    dealt = Hands.dealt(np.arange(sum(sizes)), sizes)
    expected, rng = list(dealt), numpy_stream(seed)
    while min(map(len, expected)) < least:
        now = [len(hand) for hand in expected]
        poor, rich = np.argmin(now), np.argmax(now)
        given = rng.integers(now[rich])
        expected[poor] = np.append(expected[poor], expected[rich][given])
        expected[rich] = np.delete(expected[rich], given)
    found = top_up(dealt, least, numpy_stream(seed))
    assert [hand.tolist() for hand in found] == [hand.tolist() for hand in expected]


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.integers(0, 1000))
def test_largest_remainders_sum_to_the_total_and_stay_within_one(weights, total):
    proportions = np.array(weights) / sum(weights)
    counts = largest_remainders(proportions, total)
    assert counts.sum() == total
    assert np.abs(counts - proportions * total).max() < 1 + 1e-9


@given(seed=seeds, k=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_shards_give_at_most_k_classes_where_they_fit(seed, k):
    examples = toy(np.arange(600) % 10)  # 10 clients × k shards: k per class
    hands = SortedShards(clients=10, classes_per_client=k).assign(examples, numpy_stream(seed)).train
    assert max(len(set(examples.labels[hand])) for hand in hands) <= k
    assert {len(hand) for hand in hands} == {60}


def test_a_shard_that_straddles_two_classes_adds_one():
    examples = toy(np.repeat([0, 1, 2], [30, 50, 40]))
    hands = SortedShards(clients=4, classes_per_client=2).assign(examples, numpy_stream(0)).train
    assert max(len(set(examples.labels[hand])) for hand in hands) <= 4
    assert {len(hand) for hand in hands} == {30}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"classes_per_client": 11}, "11 classes per client are more than the 10 that the data have; use fewer"),
        (
            {"clients": 4},
            "4 clients × 2 classes are too few for 10 classes; use more clients or more classes",
        ),
        ({"classes_per_client": 0}, "classes_per_client: input should be greater than or equal to 1, found 0"),
    ],
)
def test_shards_that_cannot_be_dealt_are_one_line(parameters, message):
    with pytest.raises((ConfigError, PartitionError), match=f"partition 'shards': {message}"):
        load("digits").partition("shards", **parameters)


@pytest.mark.parametrize(("held_out", "expected"), [(None, "plain"), ("rotated", "rotated")])
def test_leave_one_domain_out_tests_on_the_domain_that_no_client_has(held_out, expected):
    federation = load("digit_domains").partition("leave_one_domain_out", held_out=held_out)
    pool = federation.test.pool
    assert len(federation) == 3
    assert expected not in federation.client_names
    for name, shard in zip((*federation.client_names, expected), (*federation.clients, federation.test), strict=True):
        assert set(pool.domains[shard.indices]) == {pool.domain_names.index(name)}


def test_leave_one_domain_out_names_the_nearest_domain():
    with pytest.raises(PartitionError, match=r"unknown domain 'rotate'; did you mean 'rotated'\?"):
        load("digit_domains").partition(LeaveOneDomainOut(held_out="rotate"))


def test_leave_one_domain_out_needs_domains():
    with pytest.raises(PartitionError, match="two domains or more, found 0"):
        load("digits").partition("leave_one_domain_out")
