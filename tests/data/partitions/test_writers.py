import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import ConfigError, PartitionError, numpy_stream
from fedpace.data import Data, load
from fedpace.data.partitions import Writers

from ..helpers import toy

seeds = st.integers(0, 2**32)


def written(*sizes):
    """Writers a, b, c, ... with so many examples, mixed."""
    writers = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    names = tuple(chr(ord("a") + writer) for writer in range(len(sizes)))
    return toy(np.arange(len(writers)) % 2, domains=writers, domain_names=names)


def writers_of(examples, indices):
    return {examples.domain_names[writer] for writer in examples.domains[indices]}


@given(seed=seeds, held_out=st.sampled_from([1, 2, 0.2, 0.5]))
@settings(max_examples=50, deadline=None)
def test_a_client_is_a_writer_and_no_writer_is_trained_and_tested_on(seed, held_out):
    examples = written(12, 10, 25, 17, 30)
    dealt = Writers(held_out=held_out).assign(examples, numpy_stream(seed))
    for name, hand in zip(dealt.names, dealt.train, strict=True):
        assert writers_of(examples, hand) == {name}
    tested = writers_of(examples, dealt.held_out)
    assert tested.isdisjoint(dealt.names)
    assert tested | set(dealt.names) == set("abcde")
    used = np.concatenate([*dealt.train, dealt.held_out])
    assert sorted(used) == list(range(len(examples)))


@pytest.mark.parametrize(("held_out", "number"), [(1, 1), (3, 3), (3.0, 3), (0.01, 1), (0.4, 2), (0.5, 2), (0.7, 4)])
def test_writers_are_held_out_by_number_or_share(held_out, number):
    examples = written(*[20] * 5, 9)  # the last has too few examples to count
    dealt = Writers(held_out=held_out).assign(examples, numpy_stream(0))
    assert len(writers_of(examples, dealt.held_out)) == number
    assert len(dealt.train) == 5 - number


def test_the_seed_chooses_who_is_held_out():
    examples = written(*[20] * 10)
    tested = {
        min(writers_of(examples, Writers(held_out=1).assign(examples, numpy_stream(s)).held_out)) for s in range(30)
    }
    assert len(tested) > 5


def test_the_largest_writers_take_part_in_the_order_of_the_data():
    examples = written(12, 40, 11, 30, 30, 30, 9)
    dealt = Writers(clients=3, held_out=0, test_share=0.25).assign(examples, numpy_stream(0))
    assert dealt.names == ("b", "d", "e")  # of the three with 30, the first two


@pytest.mark.parametrize(("min_examples", "names"), [(2, "bcd"), (10, "cd"), (11, "d")])
def test_writers_with_few_examples_are_left_out(min_examples, names):
    examples = written(1, 9, 10, 11)
    partition = Writers(min_examples=min_examples, held_out=0, test_share=0.25)
    assert "".join(partition.assign(examples, numpy_stream(0)).names) == names


@pytest.mark.parametrize(("share", "tests"), [(0.25, [3, 5]), (0.01, [1, 1]), (0.5, [5, 9]), (0.99, [9, 17])])
def test_each_client_is_tested_on_a_share_of_its_own(share, tests):
    examples = written(10, 18)
    federation = Data("written", examples).partition("writers", held_out=0, test_share=share)
    assert [len(shard) for shard in federation.client_tests] == tests
    assert federation.counts().sum(axis=1).tolist() == [10 - tests[0], 18 - tests[1]]
    for name, shard in zip(federation.client_names, federation.client_tests, strict=True):
        assert writers_of(examples, shard.indices) == {name}


def test_train_and_test_set_are_merged():
    data = Data("written", written(20, 20, 20), written(4, 4, 4))
    unseen = data.partition("writers", held_out=1)
    assert [len(shard) for shard in (*unseen.clients, unseen.test)] == [24, 24, 24]
    own = data.partition("writers", held_out=0, test_share=0.25)
    assert [len(shard) for shard in own.client_tests] == [6, 6, 6]
    assert len(own.test) == 18
    both = data.partition("writers", held_out=1, test_share=0.25)
    assert [len(shard) for shard in (*both.clients, *both.client_tests, both.test)] == [18, 18, 6, 6, 24]


def test_three_thousand_writers_take_part_and_550_are_tested():
    """The reading of FEMNIST in GMA."""
    names = tuple(map(str, range(3550)))
    examples = toy(np.arange(71_000) % 10, domains=np.arange(71_000) % 3550, domain_names=names)
    dealt = Writers(clients=3000, held_out=550).assign(examples, numpy_stream(0))
    assert len(dealt.train) == 3000
    assert len(dealt.held_out) == 550 * 20
    assert len(Writers(held_out=0.155).assign(examples, numpy_stream(0)).train) == 3000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"clients": 4}, "4 clients and 1 held-out writers need 5 writers of 10 examples or more, found 4; use fewer"),
        ({"held_out": 4}, "1 clients and 4 held-out writers need 5 writers .* found 4"),
        ({"min_examples": 1000}, "need 2 writers of 1000 examples or more, found 0; .* a smaller min_examples"),
        ({"held_out": 0}, "held_out and test_share: expected one of them above 0 for a test set"),
        ({"held_out": 1.5}, "held_out: expected a number of writers, or a share below 1, found 1.5"),
        ({"held_out": float("inf")}, "held_out: expected a number of writers, or a share below 1, found inf"),
        ({"held_out": -1}, "held_out: input should be greater than or equal to 0, found -1"),
        ({"test_share": 1}, "test_share: input should be less than 1, found 1"),
        ({"clients": 0}, "clients: input should be greater than or equal to 1, found 0"),
    ],
)
def test_a_wrong_parameter_is_one_line(parameters, message):
    with pytest.raises((ConfigError, PartitionError), match=f"partition 'writers': .*{message}") as caught:
        load("digit_domains").partition("writers", **parameters)
    assert "\n" not in str(caught.value)


def test_data_without_writers():
    with pytest.raises(PartitionError, match=r"expected data that name the writer of each example .* found no domains"):
        load("digits").partition("writers")
