"""Data that are no images of classes: numbers to predict, tokens, several inputs, clients by a column."""

import numpy as np
import pytest
import torch

from fedpace.core import DataError, PartitionError
from fedpace.data import Column, Data, Examples, load


def tokens(n=20, length=6, vocabulary=tuple("abc")):
    rng = np.random.default_rng(0)
    text = rng.integers(0, len(vocabulary), (n, length + 1))
    role = Column(np.arange(n) % 4, ("hamlet", "lear", "macbeth", "othello"))
    return Examples(text[:, :-1], text[:, 1:], vocabulary=vocabulary, columns={"role": role})


def test_integers_stay_integers_and_rows_of_tokens_are_targets():
    federation = Data("text", tokens()).partition("by", column="role", test_share=0.5)
    inputs, targets = federation.clients[0].batch(slice(2))
    assert (inputs.dtype, targets.dtype) == (torch.int64, torch.int64)
    assert inputs.shape == targets.shape == (2, 6)
    assert (federation.outputs, federation.shape, federation.classes) == (3, (6,), ())
    assert "3 tokens" in repr(federation)


def test_floats_are_numbers_to_predict_and_are_dealt_without_classes():
    x, y = np.random.default_rng(0).normal(size=(50, 4)), np.linspace(0, 1, 50)
    federation = load((x, y)).partition("iid", clients=5)
    assert federation.outputs == 1
    assert federation.clients[0].batch(slice(3)).targets.dtype == torch.float32
    assert len(federation.test) == 10
    assert federation.counts().sum() == 40
    assert load((x, np.stack([y, y], 1))).partition("quantity", clients=3).outputs == 2
    with pytest.raises(DataError, match="no classes: deal the examples with 'iid', 'quantity' or 'by'"):
        load((x, y)).partition("dirichlet", clients=2)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, bool])
def test_rows_of_integers_or_booleans_are_labels_that_are_there_or_not(kind):
    labels = np.arange(60).reshape(20, 3) % 2
    federation = load((np.ones((20, 2)), labels.astype(kind))).partition("iid", clients=2)
    assert federation.clients[0].batch(slice(2)).targets.dtype == torch.int64
    assert (federation.classes, federation.outputs) == ((), 3)


def test_several_inputs_are_given_by_name():
    inputs = {"age": np.arange(10.0)[:, None], "text": np.zeros((10, 3), np.int32)}
    federation = load((inputs, np.arange(10) % 2)).partition("iid", clients=2)
    batch = federation.clients[0].batch(slice(2)).inputs
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in batch.items()} == {
        "age": (torch.float32, (2, 1)),
        "text": (torch.int64, (2, 3)),
    }
    assert federation.shape == {"age": (1,), "text": (3,)}


def test_clients_as_the_data_have_them():
    federation = Data("text", tokens()).partition("by", column="role", held_out="lear")
    assert federation.client_names == ("hamlet", "macbeth", "othello")
    assert [len(client) for client in federation.clients] == [5, 5, 5]
    assert (federation.test.indices % 4 == 1).all()
    assert len(Data("text", tokens(n=5)).partition("by", column="role", least=2, test_share=0.5)) == 1


def test_a_large_table_is_dealt_by_one_sort():
    size = 100_000
    column = Column(np.random.default_rng(0).integers(0, 1000, size), tuple(map(str, range(1000))))
    examples = Examples(np.zeros((size, 2), np.float32), np.zeros(size, np.float32), columns={"who": column})
    federation = Data("table", examples).partition("by", column="who", test_share=0.2)
    assert len(federation) == 1000
    assert all((column.values[c.indices] == i).all() for i, c in enumerate(federation.clients))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column": "rolle"}, "partition 'by': unknown column 'rolle'; did you mean 'role'?"),
        ({"column": "role", "held_out": "leer"}, "unknown role 'leer'; did you mean 'lear'?"),
    ],
)
def test_a_wrong_column_is_one_line_with_the_nearest_name(settings, message):
    with pytest.raises(PartitionError) as caught:
        Data("text", tokens()).partition("by", **settings)
    assert message in str(caught.value)


def test_diabetes_is_a_regression_with_groups():
    data = load("diabetes")
    assert len(data.train) == 442
    assert data.train.outputs == 1
    assert len(data.partition("by", column="age")) == 4
    assert abs(data.train.inputs.var() - 1) < 0.01


def test_what_goes_together_is_joined_with_its_columns():
    joined = tokens(8).joined(tokens(4))
    assert len(joined) == 12
    assert joined.column("role").values.tolist() == [*range(4)] * 3
    with pytest.raises(DataError, match="differ in vocabulary"):
        tokens().joined(tokens(vocabulary=tuple("abcd")))
