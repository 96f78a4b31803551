"""Clients that are made when they are asked for are the same as if all were there, and a million cost little."""

import gc
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core import PartitionError, numpy_stream
from fedpace.data import Coloured, Data, Examples, Federation, Hands, Ragged, Rotated, Shard, load
from fedpace.data import hands as hands_module
from fedpace.data._many import Lazy, numbered
from fedpace.data._natural import split_tests
from fedpace.data.shards import Dealt, shards_of, written

from .helpers import toy

MILLION = 1_000_000
sizes = st.lists(st.integers(0, 5), min_size=1, max_size=30)
seeds = st.integers(0, 2**32)


def lists(sizes, seed=0):
    """Hands of these sizes, as a list of arrays."""
    return np.split(np.random.default_rng(seed).permutation(sum(sizes) + 3)[: sum(sizes)], np.cumsum(sizes)[:-1])


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@given(sizes, seeds, st.slices(30))
@settings(max_examples=60, deadline=None)
def test_hands_are_a_sequence_of_arrays(sizes, seed, some):
    eager = lists(sizes, seed)
    hands = Hands.of(eager)
    assert len(hands) == len(eager)
    assert same(list(hands), eager)
    assert same([hands[-1 - i] for i in range(len(eager))], eager[::-1])
    assert same(list(hands[some]), eager[some])
    assert hands.sizes.tolist() == sizes
    assert np.array_equal(hands.joined(), np.concatenate(eager))
    assert np.array_equal(hands.owners(), np.repeat(range(len(sizes)), sizes))
    for outside in (len(eager), -len(eager) - 1):
        with pytest.raises(IndexError):
            hands[outside]


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_without_indices_examples_lie_side_by_side(sizes):
    offsets = np.cumsum([2, *sizes])
    ranges, listed = Hands(offsets), Hands(offsets, np.arange(offsets[-1]))
    assert same(list(ranges), list(listed))
    assert same(list(ranges[::-2]), list(listed[::-2]))
    assert np.array_equal(ranges.joined(), listed.joined())


@given(sizes, seeds)
@settings(max_examples=30, deadline=None)
def test_blocks_are_all_hands_a_few_at_a_time(sizes, seed):
    hands = Hands.of(lists(sizes, seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hands_module, "BLOCK", 4)
        blocks = list(hands.blocks())
    assert same([own for block in blocks for own in block], list(hands))
    assert all(len(block) == 1 or (block.sizes.sum() <= 4 and len(block) <= 4) for block in blocks)


@pytest.mark.parametrize("values", [[0, 0, 1, 3, 3], [3, 0, 3, 1, 0]])
def test_grouped_values_take_an_index_only_where_they_are_in_disorder(values):
    hands = Hands.grouped(np.array(values), 4)
    assert [sorted(own) for own in hands] == [[i for i, v in enumerate(values) if v == name] for name in range(4)]
    assert (hands.indices is None) == (values == sorted(values))


@pytest.mark.parametrize(
    ("offsets", "indices", "message"),
    [
        ([0.0, 1.0], None, r"expected offsets in one row of int64, found float64 of shape \(2,\)"),
        (np.array([0, 1], np.uint32), None, r"expected offsets in one row of int64, found uint32 of shape \(2,\)"),
        ([[0, 1]], None, r"expected offsets in one row of int64, found int64 of shape \(1, 2\)"),
        ([0, 1], [0.5], "expected indices in one row of integers, found float64"),
        ([0, 1], [True], "expected indices in one row of integers, found bool"),
        ([0, 3, 2], None, "expected offsets that rise"),
        ([], None, r"expected offsets"),
        ([0, 3], [0, 1], "expected offsets from 0 to 2, the number of indices, found 0 to 3"),
        ([-1, 2], [0, 1], "expected offsets from 0 to 2, the number of indices, found -1 to 2"),
    ],
)
def test_wrong_hands_are_one_line(offsets, indices, message):
    with pytest.raises(PartitionError, match=message) as caught:
        Hands(np.array(offsets), None if indices is None else np.array(indices))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("hands", "message"),
    [
        (Hands(np.array([0, 2, 2, 4])), "client '1' has no training examples; use fewer clients"),
        (Hands(np.array([0, 2, 11])), "indices out of range: expected 0 to 9, found 0 to 10"),
        (Hands(np.array([-1, 2])), "indices out of range: expected 0 to 9, found -1 to 1"),
        (Hands(np.array([0, 2, 4]), np.array([1, 7, 3, 7])), "example 7 is used 2 times; each belongs to one client"),
        (Hands(np.array([0, 2]), np.array([3, 12])), "indices out of range: expected 0 to 9, found 3 to 12"),
        (Hands(np.array([0])), "expected at least one client, found none"),
    ],
)
def test_hands_that_do_not_fit_the_data_are_one_line(hands, message):
    with pytest.raises(PartitionError, match=message):
        Data("ten", toy([0, 1] * 5), toy([0, 1])).partition(hands)


def test_hands_may_be_memory_mapped(tmp_path):
    np.save(tmp_path / "offsets.npy", np.array([0, 2, 5]))
    np.save(tmp_path / "indices.npy", np.array([7, 3, 0, 9, 4], dtype=np.uint32))
    mapped = Hands(*(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("offsets", "indices")))
    data = Data("ten", toy([0, 1] * 5), toy([0, 1]))
    assert data.partition(mapped).fingerprint() == data.partition([[7, 3], [0, 9, 4]]).fingerprint()


def test_given_hands_have_names_and_tests_like_lists():
    data, eager = Data("ten", toy([0, 1] * 5), toy([0, 1])), [[7, 3], [0, 9, 4]]
    hands = Hands.of([np.array(own) for own in eager])
    for parameters in ({}, {"names": ["north", "south"]}, {"test_share": 0.4, "seed": 5}):
        assert data.partition(hands, **parameters).fingerprint() == data.partition(eager, **parameters).fingerprint()
    with pytest.raises(PartitionError, match="names: expected another one for each of 2 clients, found a, a"):
        data.partition(hands, names=["a", "a"])


@given(st.lists(st.integers(2, 9), min_size=1, max_size=20), st.floats(0.01, 0.99), seeds)
@settings(max_examples=40, deadline=None)
def test_tests_are_split_off_as_if_client_after_client_were_shuffled(sizes, share, seed):
    eager = lists(sizes, seed)
    rng, expected = numpy_stream(seed), []
    for own in eager:
        mixed = rng.permutation(own)
        cut = max(len(own) - math.ceil(share * len(own)), 1)
        expected.append((mixed[:cut], mixed[cut:]))
    trains, tests = split_tests(Hands.of(eager), share, numpy_stream(seed))
    assert same(list(trains), [own for own, _ in expected])
    assert same(list(tests), [held_out for _, held_out in expected])


def test_names_are_numbers_that_are_made_when_they_are_asked_for():
    names, expected = numbered(3), ("0", "1", "2")
    assert names == expected
    assert expected == names
    assert names != ("0", "1")
    assert names != ("0", "1", "3")
    assert hash(names) == hash(("0", "1", "2"))
    assert repr(names) == "('0', '1', '2')"
    assert names[::-1] == Lazy(str, range(2, -1, -1)) == ("2", "1", "0")
    assert list(names) == ["0", "1", "2"]
    assert names.index("2") == 2
    with pytest.raises(IndexError):
        names[3]


def pool(kind):
    rng = np.random.default_rng(3)
    words = Ragged.of([rng.integers(1, 9, rng.integers(1, 6)) for _ in range(40)])
    kinds = {
        "vectors": ((rng.random((40, 3), np.float32), np.arange(40) % 3, ("a", "b", "c")), {}),
        "images": ((rng.integers(0, 255, (40, 3, 5, 1), dtype=np.uint8), np.arange(40) % 3, ("a", "b", "c")), {}),
        "numbers": ((rng.random((40, 1), np.float32), rng.random((40, 2), np.float32)), {}),
        "several": (({"x": rng.random((40, 1), np.float32), "t": words}, np.arange(40) % 2, ("a", "b")), {}),
        "texts": ((words, Ragged(words.flat + 1, words.offsets)), {"vocabulary": tuple("abcdefghij")}),
    }
    parts, further = kinds[kind]
    return Examples(*parts, **further)


def both(kind, change):
    """A federation of which each shard is made when it is asked for, and one of shards that are there."""
    examples = pool(kind)
    hands, tests = Hands.of(lists([1, 4, 2, 7, 1, 1])), Hands(np.array([19, 20, 24, 25, 27, 29, 30]))
    held_out = Shard(examples, np.arange(30, 40))
    there, their_tests = (tuple(Shard(examples, own) for own in held) for held in (hands, tests))
    names = tuple(map(str, range(6)))
    lazy = Federation("f", Dealt(examples, hands), numbered(6), held_out, Dealt(examples, tests))
    return change(lazy), change(Federation("f", there, names, held_out, their_tests))


@pytest.mark.parametrize("block", [3, 2**16])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, lambda federation: federation) for kind in ("vectors", "images", "numbers", "several", "texts")),
        ("images", lambda federation: federation.shifted(Rotated(), seed=2)),
        ("images", lambda federation: federation.shifted(Coloured()).augmented("flip")),
        ("images", lambda federation: federation.augmented("flip", "crop")),
    ],
)
def test_what_is_asked_of_all_clients_is_the_same(kind, change, block, monkeypatch):
    monkeypatch.setattr(hands_module, "BLOCK", block)
    lazy, there = both(kind, change)
    assert lazy.fingerprint() == there.fingerprint()
    assert np.array_equal(lazy.counts(), there.counts())
    assert np.array_equal(lazy.sizes(), there.sizes())
    assert (lazy.shape, repr(lazy), lazy._repr_html_()) == (there.shape, repr(there), there._repr_html_())
    assert [id(examples) for examples in lazy.pools()] == [id(lazy.test.pool)]
    for mine, theirs in ((lazy.clients, there.clients), (lazy.client_tests, there.client_tests)):
        assert len(mine) == len(theirs)
        assert list(map(written, mine)) == list(map(written, theirs))
        assert np.array_equal(shards_of(mine).joined(), shards_of(theirs).joined())


def test_shards_are_a_sequence():
    clients = Data("ten", toy([0, 1] * 5), toy([0, 1])).partition(Hands(np.array([0, 1, 3, 6]))).clients
    assert [len(shard) for shard in clients] == [1, 2, 3]
    assert [len(shard) for shard in clients[::-2]] == [3, 1]
    assert clients[-1].indices.tolist() == clients[2].indices.tolist() == [3, 4, 5]
    assert clients[np.int64(1)].indices.dtype == np.int64
    for outside in (3, -4):
        with pytest.raises(IndexError):
            clients[outside]


def test_a_federation_can_be_sent_to_a_process():
    federation = load("digits").partition("iid", clients=300, shift="rotated", test_share=0.5)
    sent = pickle.loads(pickle.dumps(federation))
    assert sent.fingerprint() == federation.fingerprint()
    assert sent.client_names == federation.client_names
    assert len(pickle.dumps(federation)) < federation.test.pool.inputs.nbytes + 100_000


def test_a_changed_example_or_owner_changes_the_fingerprint():
    examples, offsets = toy([0, 1] * 5), np.array([0, 1, 3, 6])
    order = np.arange(10)
    prints = {
        Data("ten", data, toy([0, 1])).partition(Hands(ends, indices), names=names).fingerprint()
        for data, ends, indices, names in (
            (examples, offsets, order, None),
            (examples, offsets, order[::-1], None),
            (examples, np.array([0, 2, 3, 6]), order, None),
            (examples, offsets, order, ["x", "y", "z"]),
            (toy([1, 1] * 5), offsets, order, None),
            (Examples(examples.inputs + 1, examples.targets, examples.classes), offsets, order, None),
        )
    }
    assert len(prints) == 6


def test_many_clients_are_shown_by_some():
    html = load("digits").partition("iid", clients=700)._repr_html_()
    assert html.count("<tr>") == 101
    assert html.endswith("<p>100 of 700 clients shown</p>")
    assert "clients shown" not in load("digits").partition("iid", clients=7)._repr_html_()


def peak(work):
    """Megabytes at the most, and how many objects are left that the garbage collector looks at."""
    gc.collect()
    before = len(gc.get_objects())
    tracemalloc.start()
    result = work()
    most = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    gc.collect()
    return result, most, len(gc.get_objects()) - before


def test_a_million_clients_are_a_few_arrays():
    inputs, labels = np.ones((2 * MILLION, 2), np.float32), np.arange(2 * MILLION) % 5
    data = load((inputs, labels), test=(inputs[:9], labels[:9]))
    federation, most, objects = peak(lambda: data.partition("iid", clients=MILLION))
    assert (len(federation), federation.sizes().sum()) == (MILLION, 2 * MILLION)
    assert most < 60  # 16 MB are the indices
    assert objects < 1000
    assert federation.client_names[-1] == "999999"
    assert federation.clients[-1].batch(slice(None)).inputs.shape == (2, 2)


def test_clients_side_by_side_cost_no_indices():
    data = Data("many", Examples(np.ones((MILLION, 1), np.float32), np.zeros(MILLION, int), ("0", "1")), toy([0, 1]))
    offsets = np.arange(0, MILLION + 1, 2)
    _, most, objects = peak(lambda: data.partition(Hands(offsets)))
    assert most < 15  # of which 4 MB are the sizes
    assert objects < 1000
