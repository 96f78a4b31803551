import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import DataError, PartitionError
from fedpace.data import Column, Data, Examples, Federation, Ragged, Shard, load

rows = st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=6), min_size=1, max_size=8)


def ragged(lists, dtype=np.int64):
    return Ragged.of([np.array(row, dtype) for row in lists])


def lists(made):
    return [row.tolist() for row in made]


def texts(lengths, seed=0, vocabulary=tuple("?abc")):
    """Random texts of these lengths, each with the one after it as its target, and an author."""
    rng = np.random.default_rng(seed)
    whole = [rng.integers(1, len(vocabulary), length + 1) for length in lengths]
    author = Column(np.arange(len(lengths)) % 2, ("ann", "bob"))
    inputs, targets = (Ragged.of([text[part] for text in whole]) for part in (slice(-1), slice(1, None)))
    return Examples(inputs, targets, columns={"author": author}, vocabulary=vocabulary)


@given(rows, st.data())
def test_it_behaves_like_a_list_of_rows(given_rows, data):
    made = ragged(given_rows)
    assert lists(made) == given_rows
    assert len(made) == len(given_rows)
    assert made.lengths.tolist() == [len(row) for row in given_rows]
    assert made.shape == (len(given_rows), max(map(len, given_rows)))
    chosen = data.draw(st.lists(st.integers(-len(given_rows), len(given_rows) - 1), max_size=10))
    assert lists(made[np.array(chosen, dtype=np.int64)]) == [given_rows[i] for i in chosen]
    part = data.draw(st.slices(len(given_rows)))
    assert lists(made[part]) == given_rows[part]
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(given_rows), max_size=len(given_rows))))
    assert lists(made[kept]) == [row for row, keep in zip(given_rows, kept, strict=True) if keep]


@given(rows, rows)
def test_rows_are_joined_in_order(one, two):
    both = Ragged.concatenate([ragged(one), ragged(two)])
    assert lists(both) == one + two
    assert lists(both[np.arange(len(one), len(both))]) == two


@given(rows, st.integers(-100, 0))
def test_padding_fills_up_to_the_longest_row(given_rows, value):
    padded = ragged(given_rows).padded(value)
    longest = max(map(len, given_rows))
    assert padded.tolist() == [row + [value] * (longest - len(row)) for row in given_rows]
    assert padded.dtype == np.int64


@given(rows, rows)
def test_different_rows_have_different_bytes(one, two):
    assert (ragged(one).tobytes() == ragged(two).tobytes()) == (one == two)


def test_rows_of_equal_length_are_not_copied():
    made = ragged([[1, 2], [3, 4]])
    assert np.shares_memory(made.padded(0), made.flat)


def test_what_is_taken_is_a_copy():
    made = ragged([[1, 2], [3]])
    made[np.array([0])].flat[:] = 0
    assert lists(made) == [[1, 2], [3]]


def test_an_index_out_of_range_is_an_error():
    with pytest.raises(IndexError):
        ragged([[1]])[np.array([1])]


@pytest.mark.parametrize("offsets", [[0, 2], [1, 3], [0, 2, 1, 3], []])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(DataError, match=r"^ragged: expected a flat array and offsets that rise from 0 to its length"):
        Ragged(np.arange(3), np.array(offsets, dtype=np.int64))


def test_batches_are_padded_to_their_own_longest_row():
    shard = Data("texts", texts([5, 2, 3])).partition("iid", clients=1, test_share=0.3).clients[0]
    shard = Shard(shard.pool, np.arange(3))
    inputs, targets = shard.batch(np.array([1, 2]), padding=-100)
    assert inputs.shape == targets.shape == (2, 3)
    assert inputs[0, 2] == 0
    assert targets[0, 2] == -100
    assert torch.equal(inputs[1], torch.from_numpy(shard.pool.inputs.flat[7:10]))
    assert shard.batch(slice(0, 1)).inputs.shape == (1, 5)


def test_floats_may_be_ragged_and_stand_beside_other_inputs():
    signal = ragged([[0.5, 1], [2], [3]], np.float32)
    data = load((signal, ["a", "b", "b"]))
    assert data.train.shape == (2,)
    several = Examples({"signal": signal, "age": np.ones((3, 1), np.float32)}, np.array([0, 1, 1]), ("a", "b"))
    federation = Data("several", several, several).partition("iid", clients=1)
    batch = federation.test.batch(slice(None)).inputs
    assert batch["signal"].tolist() == [[0.5, 1], [2, 0], [3, 0]]
    assert federation.shape == {"signal": (2,), "age": (1,)}
    assert len(federation.fingerprint()) == 32


def test_train_and_test_texts_may_differ_in_length():
    data = Data("texts", texts([3, 4, 2, 3]), texts([7, 2], seed=1))
    federation = data.partition("iid", clients=2)
    assert federation.shape == (7,)
    assert "4 training examples, 2 test examples, 4 tokens, shape (4,)" in repr(data)
    joined = data.train.joined(data.test)
    assert joined.inputs.lengths.tolist() == joined.targets.lengths.tolist() == [3, 4, 2, 3, 7, 2]
    assert lists(joined.take(np.array([4])).targets) == lists(data.test.targets)[:1]
    merged = data.partition("by", column="author", test_share=0.3)
    assert merged.client_names == ("ann", "bob")
    assert sum(map(len, (*merged.clients, *merged.client_tests))) == 6


def test_the_fingerprint_knows_every_target():
    def fingerprint(examples):
        return Data("texts", examples, texts([2])).partition("iid", clients=2).fingerprint()

    one = texts([4, 4, 3])
    assert fingerprint(one) == fingerprint(texts([4, 4, 3]))
    other = one.targets.flat.copy()
    other[-1] = (other[-1] + 1) % 4
    changed = Examples(one.inputs, Ragged(other, one.targets.offsets), columns=one.columns, vocabulary=one.vocabulary)
    assert fingerprint(one) != fingerprint(changed)


def test_ragged_and_other_rows_are_not_joined():
    same = texts([4, 4])
    array = Examples(same.inputs.padded(0), same.targets.padded(0), columns=same.columns, vocabulary=same.vocabulary)
    with pytest.raises(DataError, match="differ in shape: any length and 4"):
        same.joined(array)
    with pytest.raises(DataError, match=r"train and test differ in shape: \('any length',\) and \(4,\)"):
        Data("texts", same, array)
    shards = (Shard(same, np.arange(2)), Shard(array, np.arange(2)))
    with pytest.raises(PartitionError, match="expected examples of one shape"):
        Federation("mixed", shards, ("a", "b"), shards[0])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((ragged([[1], [2]], np.int32), np.zeros(2, np.float32)), "inputs: expected uint8 images .* found int32"),
        (
            (ragged([[1], [2]]), ragged([[1]])),
            "targets: expected float32 numbers or int64 tokens for each of 2 examples",
        ),
        ((ragged([[1], [2]]), ragged([[1], [np.nan]], np.float32)), "found NaN or infinity"),
        ((ragged([[1], [2]]), ragged([[0], [1]]), ("a", "b")), r"labels: expected one per example \(2\)"),
    ],
)
def test_what_does_not_fit_is_one_line(parts, message):
    with pytest.raises(DataError, match=message):
        Examples(*parts)


def test_ragged_targets_of_a_pair_are_refused():
    with pytest.raises(DataError, match="expected a class or as many numbers for each example"):
        load((np.zeros((2, 3)), ragged([[1], [2, 3]])))
