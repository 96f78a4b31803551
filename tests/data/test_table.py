"""Tables as data: what the clients' training examples say becomes of numbers, categories and missing values."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from fedpace.core import DataError
from fedpace.data import Data, Encoding, Examples, Schema, load

TABLE = {
    "hospital": ["a", "a", "a", "b", "b", "b", "c", "c"],
    "age": [20, 40, None, 60, 40, 40, 1000, None],
    "dose": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 7.0, 0.1],
    "sex": ["f", "m", "f", "m", "f", None, "x", None],
    "ill": [0, 1, 0, 1, 0, 1, 1, 0],
}


def patients(**parameters):
    return load(pa.table(TABLE), target="ill", leave_out=("hospital",), **parameters)


def dealt(**parameters):
    """Hospitals "a" and "b" train, "c" is held out: 1000 years, a dose of 7 and sex "x" are there alone."""
    return patients(**parameters).partition("by", column="hospital", held_out="c")


def train_inputs(federation):
    return np.concatenate([client.arrays(slice(None))[0] for client in federation.clients])


def column(federation, name):
    return train_inputs(federation)[:, federation.encoding.columns.index(name)]


def test_columns_are_numbers_then_categories_each_with_its_missing_column_where_clients_miss_some():
    federation = dealt()
    assert federation.encoding.columns == ("age", "age missing", "dose", "sex=f", "sex=m", "sex missing")
    assert federation.shape == (6,)
    batch = federation.clients[0].batch(slice(None))
    assert (batch.inputs.dtype, batch.inputs.shape, batch.targets.tolist()) == (torch.float32, (3, 6), [0, 1, 0])


def test_numbers_have_mean_0_and_variance_1_among_training_examples_with_the_mean_for_the_missing():
    federation = dealt()
    age = np.array([20, 40, 40, 60, 40, 40])  # the mean of the five that are there is 40
    np.testing.assert_allclose(column(federation, "age"), (age - 40) / age.std(), rtol=1e-6)
    assert column(federation, "age missing").tolist() == [0, 0, 1, 0, 0, 0]


def test_a_column_that_is_the_same_for_all_clients_is_0_even_where_a_test_example_differs():
    federation = dealt()  # the mean of six times 0.1 is not 0.1
    assert not column(federation, "dose").any()
    assert not federation.test.arrays(slice(None))[0][:, 2].any()


def test_a_column_that_no_client_has_is_0_and_missing():
    table = pa.table({"x": [1.0, 2.0, None], "none": pa.nulls(3), "who": ["a", "a", "b"], "y": [0, 1, 0]})
    federation = load(table, target="y", leave_out=("who",)).partition("by", column="who", held_out="b")
    assert federation.encoding.columns == ("x", "none", "none missing")
    assert train_inputs(federation).tolist() == [[-1, 0, 1], [1, 0, 1]]
    assert federation.test.arrays(slice(None))[0].tolist() == [[0, 0, 1]]  # a missing x is the mean


def test_categories_are_one_hot_over_the_values_of_training_clients_and_missing_is_one_of_them():
    federation = dealt()
    assert train_inputs(federation)[:, 3:].tolist() == [
        *([1, 0, 0], [0, 1, 0], [1, 0, 0]),
        *([0, 1, 0], [1, 0, 0], [0, 0, 1]),
    ]
    assert federation.test.arrays(slice(None))[0][:, 3:].tolist() == [[0, 0, 0], [0, 0, 1]]


def test_what_is_held_out_does_not_change_the_encoding():
    table = pa.table({**TABLE, "age": [*TABLE["age"][:6], -5, 3], "sex": [*TABLE["sex"][:6], "f", "m"]})
    other = load(table, target="ill", leave_out=("hospital",)).partition("by", column="hospital", held_out="c")
    assert other.encoding == dealt().encoding
    assert other.encoding != patients().partition("by", column="hospital", held_out="a").encoding


@pytest.mark.parametrize("partition", [{"test_share": 0.3}, {"test_share": 0.0}, {"limit": 60, "test_share": 0.5}])
def test_the_encoding_is_fitted_on_the_training_examples_of_every_deal(partition):
    rng = np.random.default_rng(0)
    age = rng.normal(50, 10, 100)
    federation = load(pa.table({"age": age, "y": rng.integers(0, 2, 100)}), target="y").partition("iid", **partition)
    inputs = train_inputs(federation)
    assert (abs(inputs.mean()), abs(inputs.std() - 1)) < (1e-6, 1e-6)
    assert all(shard.pool is federation.test.pool for shard in federation.client_tests or ())


def test_a_test_set_of_its_own_is_encoded_like_the_clients():
    train, test = (load(pa.table({"x": x, "y": [0, 1]}), target="y").train for x in ([1.0, 3.0], [2.0, 5.0]))
    federation = Data("own", train, test).partition("iid", clients=1)
    assert sorted(train_inputs(federation)[:, 0]) == [-1, 1]
    assert federation.test.arrays(slice(None))[0].tolist() == [[0], [3]]


def test_values_that_no_training_client_has_are_counted_in_one_line():
    assert dealt().notes == (
        "1 test example has a value of 'sex' that no training client has: counted as missing (all zeros)",
    )
    table = pa.table({**TABLE, "sex": [*"fmfmf", None, "x", "y"]})
    two = load(table, target="ill", leave_out=("hospital",)).partition("by", column="hospital", held_out="c")
    assert two.notes[0].startswith("2 test examples have a value of 'sex'")
    assert patients().partition("by", column="hospital", held_out="b").notes == ()
    with pytest.raises(DataError, match=r"1 test example has a value of 'sex' that no training client has; use unseen"):
        dealt(unseen="refuse")
    assert patients(unseen="refuse").partition("by", column="hospital", held_out="b").encoding.unseen == "refuse"


def test_what_is_nobodys_is_not_counted():
    federation = patients().partition("by", column="hospital", least=3, test_share=0.3)
    assert (len(federation), federation.notes) == (2, ())


def test_encoding_and_notes_survive_a_replacement_and_enter_the_fingerprint():
    federation = dealt()
    renamed = replace(federation, name="other")
    assert (renamed.encoding, renamed.notes) == (federation.encoding, federation.notes)
    assert renamed.fingerprint() == federation.fingerprint() == dealt().fingerprint()
    dose = federation.encoding.numbers[1].model_copy(update={"mean": 0.2})  # its column is 0 all the same
    other = federation.encoding.model_copy(update={"numbers": (federation.encoding.numbers[0], dose)})
    assert replace(federation, encoding=other).fingerprint() != federation.fingerprint()


def test_other_data_have_neither():
    federation = load("digits").partition("iid")
    assert (federation.encoding, federation.notes) == (None, ())


def test_the_encoding_is_the_same_after_a_file():
    encoding = dealt().encoding.model_copy(update={"unseen": "refuse"})
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    with pytest.raises(DataError, match=r"encoding: unknown key 'number'; did you mean 'numbers'?") as caught:
        Encoding.from_json({"numbers": [], "categories": [], "number": []})
    assert "\n" not in str(caught.value)


def test_new_rows_are_encoded_as_the_examples_were():
    federation = dealt()
    rows = {name: values[:6] for name, values in TABLE.items()}
    np.testing.assert_array_equal(federation.encoding.encode(rows), train_inputs(federation))
    columns = {"age": np.array([np.nan, 40.0]), "dose": [1, 2], "sex": np.array(["x", None])}
    encoded = federation.encoding.encode(columns)
    assert (encoded.dtype, encoded.tolist()) == (np.float32, [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]])


@pytest.mark.parametrize("ones", [[1, 1], [1.0, None], ["1", "1"]])
def test_a_number_that_stands_for_a_name_is_the_same_value_as_a_float_and_as_text(ones):
    table = pa.table({"kind": [1, 2, 10, 1], "x": [1, 2, 3, 4], "y": [0, 1, 0, 1]})
    encoding = load(table, target="y", categories=("kind",)).partition("iid", clients=1, test_share=0.1).encoding
    assert encoding.categories[0].values == ("1", "2", "10")
    assert encoding.encode({"kind": ones, "x": [0, 0]})[0, 1:].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agee": [1], "age": None}, "encode: expected a column 'age', found none; did you mean 'agee'?"),
        ({"age": ["old"]}, "column 'age': expected numbers, found text such as 'old'"),
        ({"age": [1, "old"]}, "column 'age': expected values of one kind, found others"),
        ({"age": 7}, "column 'age': expected values of one kind, found others"),
        ({"age": [float("inf")]}, "column 'age': expected numbers, found infinity; leave these cells empty"),
        ({"age": [1, 2]}, "encode: expected as many values in each column, found {'age': 2, 'dose': 1, 'sex': 1}"),
        ({"sex": ["x"]}, "1 row has a value of 'sex' that no training client has; use unseen = 'missing'"),
        ({"sex": [["f"]]}, "column 'sex': expected numbers, text or booleans, found list"),
    ],
)
def test_rows_that_do_not_fit_are_one_line(change, message):
    encoding = dealt().encoding.model_copy(update={"unseen": "refuse"})
    rows = {"age": [1], "dose": [1], "sex": ["f"], **change}
    with pytest.raises(DataError) as caught:
        encoding.encode({name: values for name, values in rows.items() if values is not None})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.zeros((2, 1), np.float32)}, "table: unknown column 'sex'; known: x"),
        ({"sex": np.zeros((2, 1), np.float32)}, "column 'sex': expected int64 of shape n × 1, found float32"),
        (
            {"sex": np.zeros((2, 2), np.int64)},
            "column 'sex': expected int64 of shape n × 1, found int64 of shape (2, 2)",
        ),
        ({"sex": np.array([[0], [2]])}, "column 'sex': expected codes from -1 to 1, found 0 to 2"),
        (np.zeros((2, 1), np.float32), "table: unknown column 'sex'; known: inputs"),
    ],
)
def test_a_table_that_is_not_as_its_schema_says_is_one_line(inputs, message):
    with pytest.raises(DataError) as caught:
        Examples(inputs, np.array([0, 1]), ("a", "b"), schema=Schema({"sex": ("f", "m")}))
    assert message in str(caught.value)


def test_train_and_test_set_have_one_schema():
    first, second = (load(pa.table({"sex": sex, "y": [0, 1]}), target="y").train for sex in (["f", "m"], ["f", "x"]))
    with pytest.raises(DataError, match="train and test differ in schema"):
        Data("own", first, second)
    with pytest.raises(DataError, match="they differ in schema"):
        replace(first, columns={}).joined(replace(second, columns={}))


def test_a_large_table_is_dealt_without_a_loop_over_rows():
    size, rng = 200_000, np.random.default_rng(0)
    names = np.array([f"client {number}" for number in range(1000)])
    table = pa.table(
        {"x": rng.normal(size=size), "y": rng.integers(0, 3, size), "who": names[rng.integers(0, 1000, size)]}
    )
    federation = load(table, target="y", leave_out=("who",)).partition("by", column="who", test_share=0.2)
    assert (len(federation), federation.shape) == (1000, (1,))
    assert abs(train_inputs(federation).std() - 1) < 1e-5
