"""Files that somebody else wrote, odd or hostile: data, or one line that names the file; never a traceback."""

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedpace.core import DataError, FedpaceError
from fedpace.data import load
from tests.json_places import changed, places

from ..helpers import png

IMAGE = {"bytes": png(7), "path": "7.png"}
IMAGES = [IMAGE, IMAGE]


def opened(source, **parameters):
    """Load and deal the data, as a run does; the line with which that is refused, or nothing."""
    try:
        data = load(source, **parameters)
        data.partition("iid", clients=1)
    except FedpaceError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))


# LEAF.

PIXELS = [[0, 0.5, 1, 0], [0, 1, 0, 0]] * 5
LEAF = {
    "users": ["f01", "f02"],
    "num_samples": [10, 10],
    "user_data": {"f01": {"x": PIXELS, "y": [3, 4] * 5}, "f02": {"x": PIXELS, "y": [4, 3] * 5}},
}
WRONG = (
    None, True, 0, -1, 1, 2, 0.5, 1e400, float("nan"), 2**63, 2**64, 10**400, "", "x", "2", "\ud800", [], {}, [[]],
    [None], ["x"], [0.5], [[0, 0], [0]], [[[0]]], {"x": 1}, {"a": {"b": None}}, [True, False], [1, "x"], [2**64, 1],
    [[[[0] * 4]] * 2],
)  # fmt: skip


def without(value, path):
    copy = value.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(value[path[0]], path[1:])
    return copy


def leaf(tmp_path, content):
    return leaf_of_text(tmp_path, json.dumps(content))


def leaf_of_text(tmp_path, text):
    file = tmp_path / "odd" / "all_data.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return opened("leaf", path=file.parent)


def test_leaf_as_it_should_be(tmp_path):
    assert leaf(tmp_path, LEAF) is None


@pytest.mark.parametrize("path", [*places(LEAF)], ids=lambda path: ".".join(map(str, path)) or "all")
def test_anything_in_the_place_of_anything_in_leaf(tmp_path, path):
    refused = 0
    for value in WRONG:
        line = leaf(tmp_path, changed(LEAF, path, value))
        assert line is None or str(tmp_path / "odd") in line, value
        refused += line is not None
    assert refused >= len(WRONG) - 4


@pytest.mark.parametrize("path", [path for path in places(LEAF) if path], ids=lambda path: ".".join(map(str, path)))
def test_anything_missing_in_leaf(tmp_path, path):
    line = leaf(tmp_path, without(LEAF, path))
    assert line is not None
    assert str(tmp_path / "odd") in line


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "\x00", json.dumps(LEAF) * 2, '{"users": ' + "9" * 5000 + "}"]
)
def test_what_is_no_json(tmp_path, text):
    assert "expected a complete JSON file" in leaf_of_text(tmp_path, text)


# Images in parquet.

STRUCT = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def parquet(tmp_path, **columns):
    file = tmp_path / "train.parquet"
    pq.write_table(repeated(columns), file)
    return file


def repeated(columns):
    """A table of enough rows to hold out a test set."""
    return pa.table({name: pa.chunked_array([column] * 10, column.type) for name, column in columns.items()})


GOOD = {
    "dictionary labels": {"label": pa.array(["cat", "dog"]).dictionary_encode()},
    "large strings": {"label": pa.array(["cat", "dog"], pa.large_string())},
    "small integers": {"label": pa.array([0, 1], pa.int8())},
    "unsigned": {"label": pa.array([0, 1], pa.uint64())},
    "large binary": {"image": pa.array(IMAGES, pa.struct({"bytes": pa.large_binary(), "path": pa.string()}))},
    "no path": {"image": pa.array([{"bytes": png(1)}] * 2)},
    "more in the struct": {"image": pa.array([{**IMAGE, "size": 3}] * 2)},
    "domains of numbers": {"domain": pa.array([4, 5])},
    "domains in a dictionary": {"domain": pa.array(["a", "b"]).dictionary_encode()},
    "another column": {"boxes": pa.array([[[1.0]], []])},
}
ODD = {
    "image bytes alone": {"image": pa.array([png(1), png(2)])},
    "label null": {"label": pa.array([None, None])},
    "label null type": {"label": pa.nulls(2)},
    "label some null": {"label": pa.array([0, None])},
    "label some null text": {"label": pa.array(["cat", None])},
    "label null in dictionary": {"label": pa.array(["cat", None]).dictionary_encode()},
    "label negative": {"label": pa.array([-1, 0])},
    "label fractions": {"label": pa.array([0.5, 1.0])},
    "label NaN": {"label": pa.array([float("nan"), 1.0])},
    "label lists": {"label": pa.array([[1], [2]])},
    "label lists of text": {"label": pa.array([["a"], ["b"]])},
    "label empty lists": {"label": pa.array([[], []], pa.list_(pa.int64()))},
    "label structs": {"label": pa.array([{"a": 1}, {"a": 2}])},
    "label maps": {"label": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))},
    "label times": {"label": pa.array([datetime.datetime(2020, 1, 1)] * 2)},
    "label dates": {"label": pa.array([datetime.date(2020, 1, 1)] * 2)},
    "label durations": {"label": pa.array([datetime.timedelta(1)] * 2)},
    "label binary": {"label": pa.array([b"a", b"b"])},
    "label decimals": {"label": pa.array([decimal.Decimal("1.5"), decimal.Decimal("2")])},
    "label booleans": {"label": pa.array([True, False])},
    "label half": {"label": pa.array([0.0, 1.0], pa.float16()) if hasattr(pa, "float16") else pa.array([0.5, 1.0])},
    "label too large": {"label": pa.array([2**64 - 1, 0], pa.uint64())},
    "domain null": {"domain": pa.nulls(2)},
    "domain some null": {"domain": pa.array(["a", None])},
    "domain lists": {"domain": pa.array([["a"], ["b"]])},
    "domain structs": {"domain": pa.array([{"a": "b"}] * 2)},
    "domain negative": {"domain": pa.array([-3, 1])},
    "image text": {"image": pa.array(["a.png", "b.png"])},
    "image numbers": {"image": pa.array([1, 2])},
    "image null": {"image": pa.array([None, None], STRUCT)},
    "image null type": {"image": pa.nulls(2)},
    "image lists": {"image": pa.array([[1, 2], [3, 4]])},
    "image lists of structs": {"image": pa.array([[IMAGE], [IMAGE]])},
    "image struct without bytes": {"image": pa.array([{"path": "a.png"}] * 2)},
    "image struct of text": {"image": pa.array([{"bytes": "text"}] * 2)},
    "image struct of numbers": {"image": pa.array([{"bytes": 3}] * 2)},
    "image struct of lists": {"image": pa.array([{"bytes": [1, 2]}] * 2)},
    "image struct of structs": {"image": pa.array([{"bytes": IMAGE}] * 2)},
    "image bytes null": {"image": pa.array([{"bytes": None, "path": "a"}] * 2, STRUCT)},
    "image bytes empty": {"image": pa.array([{"bytes": b"", "path": "a"}] * 2)},
    "image bytes rubbish": {"image": pa.array([{"bytes": b"rubbish", "path": "a"}] * 2)},
    "image map": {"image": pa.array([[("bytes", b"a")]] * 2, pa.map_(pa.string(), pa.binary()))},
    "no image": {"image": None},
    "no label": {"label": None},
    "no rows": {"image": pa.array([], STRUCT), "label": pa.array([], pa.int64())},
    "no rows of text": {"image": pa.array([], STRUCT), "label": pa.array([], pa.string())},
}


def table(**changes):
    columns = {"image": pa.array(IMAGES), "label": pa.array([0, 1])} | changes
    return {name: column for name, column in columns.items() if column is not None}


@pytest.mark.parametrize("columns", GOOD.values(), ids=GOOD)
def test_parquet_that_is_read_however_it_is_encoded(tmp_path, columns):
    assert opened(parquet(tmp_path, **table(**columns))) is None


@pytest.mark.parametrize("columns", ODD.values(), ids=ODD)
def test_odd_parquet_is_one_line(tmp_path, columns):
    file = parquet(tmp_path, **table(**columns))
    for line in (opened("parquet", path=file), opened(tmp_path)):
        assert line is not None
        assert str(file) in line or str(tmp_path) in line


def test_a_column_twice_is_one_line(tmp_path):
    file = tmp_path / "train.parquet"
    for name in ("image", "label"):
        columns = {"image": pa.array(IMAGES), "label": pa.array([0, 1])}
        pq.write_table(pa.table([*columns.values(), columns[name]], [*columns, name]), file)
        assert str(file) in opened("parquet", path=file)


def test_files_of_a_split_that_differ_are_one_line(tmp_path):
    for number, label in enumerate([pa.array([0, 1]), pa.array(["cat", "dog"])]):
        pq.write_table(repeated(table(label=label)), tmp_path / f"train-{number}.parquet")
    assert str(tmp_path) in opened(tmp_path)
    pq.write_table(
        repeated(table(label=pa.array(["a", "b"]))).rename_columns(["image", "kind"]), tmp_path / "train-1.parquet"
    )
    assert "expected a column 'label or fine_label'" in opened(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 10, b"\x00" * 1000])
def test_what_is_no_parquet_is_one_line(tmp_path, content):
    (tmp_path / "train.parquet").write_bytes(content)
    for line in (opened(tmp_path), opened(tmp_path / "train.parquet"), opened(tmp_path / "train.parquet", target="x")):
        assert "train.parquet: expected a complete" in line


def test_damaged_pages_of_parquet_are_one_line(tmp_path):
    file = parquet(tmp_path, **table())
    content = file.read_bytes()
    for start in range(4, len(content) - 8, 37):
        file.write_bytes(content[:start] + b"\xff" * 16 + content[start + 16 :])
        line = opened("parquet", path=file)
        assert line is None or str(file) in line


# Tables.

COLUMN = {
    "numbers": pa.array([1.0, 2.0, 3.0]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "dictionary of numbers": pa.array([5, 6, 5]).dictionary_encode(),
    "null": pa.nulls(3),
    "some null": pa.array([1, None, 3]),
    "text and null": pa.array(["a", None, "b"]),
    "lists": pa.array([[1], [2], None]),
    "structs": pa.array([{"a": 1}] * 3),
    "maps": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"a", b"\xff", None]),
    "times": pa.array([datetime.datetime(2020, 1, 1)] * 3),
    "dates": pa.array([datetime.date(2020, 1, 1)] * 3),
    "durations": pa.array([datetime.timedelta(1)] * 3),
    "decimals": pa.array([decimal.Decimal("1.5")] * 3),
    "large decimals": pa.array([decimal.Decimal(10) ** 37] * 3, pa.decimal256(60, 2)),
    "half": pa.array([1.0, 2.0, 3.0]).cast(pa.float16()),
    "unsigned": pa.array([2**64 - 1, 0, 1], pa.uint64()),
    "infinite": pa.array([float("inf"), 1.0, 2.0]),
    "NaN": pa.array([float("nan")] * 3),
    "booleans": pa.array([True, None, False]),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1.0, 2.0])),
    "text views": pa.array(["a", "b", "c"], pa.string_view()),
    "empty text": pa.array(["", "", ""]),
}


@pytest.mark.parametrize("kind", ["auto", "classes", "numbers"])
@pytest.mark.parametrize("column", COLUMN)
def test_odd_columns_of_a_table(column, kind):
    """As an input, as the target, left out and dealt by, and as a category."""
    ages = pa.array([10, 20, 30])
    for columns, parameters in (
        ({"age": ages, "odd": COLUMN[column], "ill": pa.array([0, 1, 0])}, {}),
        ({"age": ages, "odd": COLUMN[column], "ill": pa.array([0, 1, 0])}, {"leave_out": ("odd",)}),
        ({"age": ages, "odd": COLUMN[column], "ill": pa.array([0, 1, 0])}, {"categories": ("odd",)}),
        ({"age": ages, "ill": COLUMN[column]}, {}),
    ):
        line = opened(repeated(columns), target="ill", kind=kind, **parameters)
        assert line is None or ("table" in line and "\n" not in line)


@pytest.mark.parametrize("column", [name for name in COLUMN if name not in ("half", "run ends")])
def test_odd_columns_of_a_table_in_parquet(tmp_path, column):
    file = tmp_path / "patients.parquet"
    try:
        pq.write_table(repeated({"odd": COLUMN[column], "age": pa.array([1, 2, 3]), "ill": pa.array([0, 1, 0])}), file)
    except pa.ArrowException:
        pytest.skip("parquet has no such column")
    for line in (opened(file, target="ill"), opened(file, target="odd")):
        assert line is None or "'patients'" in line or str(file) in line


@pytest.mark.parametrize(
    "text",
    ["", "\n", "age,ill\n", "age,age,ill\n1,2,0\n", "age,ill\n1\n2,3,4\n", "ill\n1\n0\n", ",ill\n1,0\n" * 9, "\x00",
     "age,ill\n\xff,1\n", 'age,ill\n"1,0\n', "age,ill\n" + "x" * 2_000_000 + ",1\n" + "y,0\n" * 9],
    ids=["nothing", "empty line", "no rows", "twice", "ragged", "only target", "no name", "null byte", "umlaut",
         "open quote", "long cell"],
)  # fmt: skip
def test_odd_csv(tmp_path, text):
    file = tmp_path / "patients.csv"
    file.write_bytes(text.encode("latin-1"))
    line = opened(file, target="ill")
    assert line is None or "'patients'" in line or str(file) in line
    opened("text", path=file, column="age")  # has its own message


def test_the_error_is_that_of_the_data(tmp_path):
    with pytest.raises(DataError, match=r"train\.parquet"):
        load(parquet(tmp_path, **table(**ODD["label lists"])))
