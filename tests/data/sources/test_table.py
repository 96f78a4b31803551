import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedpace.core import ConfigError, DataError
from fedpace.data import load
from fedpace.data.sources.table import is_frame

from ..helpers import write_parquet

CSV = "hospital,age,sex,smoker,grade,num\nwest,40,f,true,1,0\nwest,,m,false,2,1\neast,60.5,,,2,0\neast,50,f,true,,3\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(CSV)
    return path


def test_a_csv_file_with_numbers_categories_and_empty_cells(file):
    data = load(str(file), target="num", leave_out=("hospital",), categories=("grade",))
    assert repr(data) == "Data('patients': 4 training examples, no test set, 3 classes, 4 columns)"
    inputs = {name: column[:, 0].tolist() for name, column in data.train.inputs.items()}
    assert np.isnan(inputs["age"][1])
    assert inputs["age"][::2] == [40, 60.5]
    assert inputs["sex"] == [0, 1, -1, 0]
    assert inputs["grade"] == [0, 1, 1, -1]
    assert data.train.schema.categories == {"sex": ("f", "m"), "smoker": ("False", "True"), "grade": ("1", "2")}
    assert data.train.targets.tolist() == [0, 1, 0, 2]
    assert data.train.classes == ("0", "1", "3")


def test_parquet_is_read_like_csv(file, tmp_path):
    rows = load(file, target="num").train
    table = pa.table(
        {"age": [40, None, 60.5, 50], "who": pa.array(["w", "w", "e", None]).dictionary_encode(), "num": [0.5] * 4}
    )
    pq.write_table(table, tmp_path / "patients.parquet")
    data = load(tmp_path / "patients.parquet", target="num")
    np.testing.assert_array_equal(data.train.inputs["age"], rows.inputs["age"])
    assert data.train.schema.categories == {"who": ("e", "w")}
    assert data.train.columns["who"].names == ("e", "w", "missing")
    assert data.train.columns["who"].values.tolist() == [1, 1, 0, 2]
    assert data.train.targets.dtype == np.float32


def test_parquet_with_images_stays_images(tmp_path):
    assert load(write_parquet(tmp_path / "x.parquet", [0, 1])).train.shape == (1, 4, 4)
    with pytest.raises(ConfigError, match="data source 'parquet': unknown key 'target'"):
        load(write_parquet(tmp_path / "x.parquet", [0, 1]), target="label")


def test_clients_are_the_values_of_columns_of_text_and_of_those_left_out(file):
    columns = load(file, target="num", leave_out=("hospital", "grade")).train.columns
    assert set(columns) == {"hospital", "sex", "grade"}
    assert columns["grade"].names == ("1", "2", "missing")
    many = pa.table(
        {"id": np.arange(10_001), "x": np.arange(10_001), "date": pa.nulls(10_001, pa.date32()), "y": [0] * 10_001}
    )
    assert load(many, target="y", leave_out=("id", "date")).train.columns == {}
    assert len(load(many[:10_000], target="y", leave_out=("id", "date")).train.columns["id"].names) == 10_000


def test_a_column_by_which_clients_differ_stays_an_input_unless_it_is_left_out(file):
    for leave_out, inputs in (((), True), (("hospital",), False)):
        federation = load(file, target="num", leave_out=leave_out).partition("by", column="hospital", test_share=0.5)
        assert federation.client_names == ("east", "west")
        assert ("hospital=east" in federation.encoding.columns) is inputs


@pytest.mark.parametrize(
    ("values", "kind", "classes"),
    [
        (["b", "a", "b"], "auto", ("a", "b")),
        ([True, False, True], "auto", ("False", "True")),
        ([10, 9, 10], "auto", ("9", "10")),
        ([1.0, 2.0, 1.0], "auto", ()),
        ([1.0, 2.0, 1.0], "classes", ("1", "2")),
        ([1, 2, 1], "numbers", ()),
        ([True, False, True], "numbers", ()),
        (["1", "2", "x"], "classes", ("1", "2", "x")),
        (["a", "a", "a"], "auto", ("a",)),
    ],
)
def test_what_the_target_is(values, kind, classes):
    data = load(pa.table({"x": [1, 2, 3], "y": values}), target="y", kind=kind)
    assert data.train.classes == classes


def test_more_than_20_whole_numbers_are_numbers_to_predict():
    for count, classes in ((20, 20), (21, 0)):
        table = pa.table({"x": np.arange(count), "y": np.arange(count)})
        assert len(load(table, target="y").train.classes) == classes


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (CSV, {"target": "nun"}, "table 'patients': unknown column 'nun'; did you mean 'num'?"),
        (CSV, {"leave_out": ["hopsital"]}, "unknown column 'hopsital'; did you mean 'hospital'?"),
        (CSV, {"categories": ["gade"]}, "unknown column 'gade'; did you mean 'grade'?"),
        (CSV, {"leave_out": ["num"]}, "column 'num' is named twice"),
        ("a,num\n", {}, "table 'patients': expected rows, found none"),
        ("num\n1\n", {}, "expected a column to learn from, found none"),
        ("a,a,num\n1,2,3\n", {}, "expected columns of different names, found 'a' twice"),
        ("a,num\n1,1\n2,\n3,\n", {}, "a value of 'num' in each row, found 2 rows without; leave these rows out"),
        ("a,num\n1,1\n2,\n", {}, "found 1 row without"),
        ("a,num\n1,1\n2\n", {}, "patients.csv: expected a complete .csv file, but it cannot be read (CSV parse error"),
        ("", {}, "patients.csv: expected a complete .csv file, but it cannot be read (Empty CSV file)"),
        ("a,num\n1,1\n2,0\n?,1\n", {}, "column 'a': expected numbers or text, found both: 2 numbers and '?'; leave"),
        ("a,num\n1,1\n2,2\n3,?\n", {}, "column 'num': expected numbers or text, found both: 2 numbers and '?'"),
        ("a,num\n1,x\n2,y\n", {"kind": "numbers"}, "column 'num': expected numbers, found text such as 'x'"),
        ("a,num\n1,1\ninf,2\n", {}, "column 'a': expected numbers, found infinity; leave these cells empty"),
        ("a,num\n1,1\n1e39,2\n", {}, "column 'a': expected numbers, found infinity"),
        ("a,num\n2020-01-01,1\n", {}, "'a': expected numbers, text or booleans, found date32[day]; leave it out"),
        ("a,num\n1,0.5\n2,inf\n", {}, "targets: expected numbers, found NaN or infinity"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path, text, settings, message):
    (tmp_path / "patients.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        load(tmp_path / "patients.csv", **{"target": "num", **settings})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_and_numbers_together_are_categories_if_the_user_says_so():
    table = pa.table({"room": ["1", "2", "3a"], "y": [0, 1, 0]})
    assert load(table, target="y", categories=("room",)).train.schema.categories == {"room": ("1", "2", "3a")}


def test_text_that_is_different_in_each_row_is_no_category():
    table = pa.table({"name": [f"patient {row}" for row in range(1001)], "y": [0] * 1001, "x": [0] * 1001})
    with pytest.raises(
        DataError, match="column 'name': expected a category of at most 1000 different values, found 1001"
    ):
        load(table, target="y")
    assert len(load(table, target="y", leave_out=("name",)).train.columns["name"].names) == 1001


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "target: field required"),
        ({"target": "y", "categorys": ()}, "unknown key 'categorys'; did you mean 'categories'?"),
        ({"target": "y", "kind": "class"}, "kind: input should be 'auto', 'classes' or 'numbers', found 'class'"),
    ],
)
def test_wrong_parameters_are_one_line_for_files_and_frames(file, settings, message):
    for source in (file, pa.table({"x": [1], "y": [1]})):
        with pytest.raises(ConfigError) as caught:
            load(source, **settings)
        assert message in str(caught.value)


def test_files_that_are_no_tables_are_one_line(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.csv: no such file or folder; expected parquet, CSV or images"):
        load("nowhere.csv", target="y")
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match=r"x.txt: expected a file that ends in .csv or .parquet, found '.txt'"):
        load("table", path=tmp_path / "x.txt", target="y")
    (tmp_path / "x.parquet").write_text("PAR1")
    with pytest.raises(DataError, match=r"x.parquet: expected a complete .parquet file"):
        load(tmp_path / "x.parquet", target="y")


def test_text_deep_in_a_file_is_found(tmp_path):
    (tmp_path / "x.csv").write_text("a,y\n" + "1,0\n" * 500_000 + "none,1\n")
    assert load(tmp_path / "x.csv", target="y", categories=("a",)).train.schema.categories == {"a": ("1", "none")}


def test_a_frame_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"age": [40, None, 60], "sex": pandas.Categorical(["f", None, "m"]), 7: ["a", "b", "a"], "num": [0, 1, 0]},
        index=[5, 6, 7],
    )
    data = load(frame, target="num")
    assert list(data.train.inputs) == ["age", "sex", "7"]
    assert data.train.inputs["sex"].ravel().tolist() == [0, -1, 1]
    assert np.isnan(data.train.inputs["age"]).ravel().tolist() == [False, True, False]
    with pytest.raises(DataError, match="expected columns of one kind each, found others") as caught:
        load(pandas.DataFrame({"x": [1, "a"], "num": [0, 1]}), target="num")
    assert "\n" not in str(caught.value)


def test_a_frame_is_known_by_its_module_without_importing_pandas():
    for module, known in (("pandas.core.frame", True), ("pandas", True), ("polars", False)):
        assert is_frame(type("DataFrame", (), {"__module__": module})()) is known
