"""FEMNIST in its two forms: parquet of the hub, and LEAF's JSON."""

import json

import numpy as np
import pytest

from fedpace.core import ConfigError, DataError
from fedpace.data import load, sources

from ..helpers import write_parquet

LABELS = [0, 9, 10, 35, 36, 61]
WRITERS = ["f02", "f01", "f01", "f03", "f02", "f02"]


def write_hub(tmp_path, split="train", labels=LABELS, writers=WRITERS):
    columns = {"writer_id": writers, "hsf_id": [0] * len(labels)}
    return write_parquet(tmp_path / "data" / "femnist" / f"{split}.parquet", labels, label="character", **columns)


def test_the_hubs_writers_are_domains(tmp_path):
    write_hub(tmp_path)
    data = load("femnist")
    assert data.test is None
    assert len(data.train.classes) == 62
    assert [data.train.classes[label] for label in data.train.labels] == list("09AZaz")
    assert data.train.domain_names == ("f01", "f02", "f03")
    assert [data.train.domain_names[writer] for writer in data.train.domains] == WRITERS
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_digits_alone_are_ten_classes_and_those_who_wrote_any(tmp_path):
    write_hub(tmp_path)
    write_hub(tmp_path, "test", labels=[3, 40], writers=["f04", "f05"])
    data = load("femnist", characters="digits")
    assert data.train.classes == data.test.classes == tuple("0123456789")
    assert data.train.labels.tolist() == [0, 9]
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 1]
    assert data.train.domain_names == data.test.domain_names == ("f01", "f02", "f04")
    assert data.train.domains.tolist() == [1, 0]
    assert data.test.domains.tolist() == [2]


def test_without_digits_there_is_one_line(tmp_path):
    write_hub(tmp_path, labels=[20] * 6)
    with pytest.raises(DataError, match=r"data 'femnist': expected digits \(labels 0 to 9\), found none"):
        load("femnist", characters="digits")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": "label", "writer_id": ["a"]}, "expected a column 'character', found image, label, writer_id"),
        ({"label": "character"}, "expected a column 'writer_id', found image, character"),
    ],
)
def test_a_missing_column_is_named(tmp_path, columns, message):
    write_parquet(tmp_path / "data" / "femnist" / "train.parquet", [0], **columns)
    with pytest.raises(DataError, match=message):
        load("femnist")


def test_of_many_writers_the_first_are_listed(tmp_path):
    write_hub(tmp_path, labels=list(range(30)), writers=[f"w{number}" for number in range(30)])
    assert repr(load("femnist")).endswith("shape (1, 4, 4), domains w0, w1, w10, w11, w12 and 25 more)")


def user(count, side=2, first=0):
    """Images of one value, a tenth brighter each, and consecutive labels."""
    return {"x": [[number / 10] * side**2 for number in range(count)], "y": list(range(first, first + count))}


def write_leaf(path, users, /, **changes):
    content = {
        "users": list(users),
        "num_samples": [len(data["y"]) for data in users.values()],
        "user_data": users,
        "hierarchies": None,
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("folder", ["", "data/"])
def test_leafs_train_and_test_files(tmp_path, folder):
    write_leaf(
        tmp_path / f"{folder}train/all_data_0_niid_0_keep_0_train_9.json", {"f02": user(3), "f01": user(2, first=36)}
    )
    write_leaf(tmp_path / f"{folder}train/all_data_1_niid_0_keep_0_train_9.json", {"f03": user(1)})
    write_leaf(tmp_path / f"{folder}test/all_data_0_niid_0_keep_0_test_9.json", {"f04": user(2), "f01": user(1)})
    data = load(tmp_path)
    assert data.train.shape == (1, 2, 2)
    assert data.train.inputs[:, 1, 1, 0].tolist() == [0, 26, 51, 0, 26, 0]
    assert data.train.labels.tolist() == [0, 1, 2, 36, 37, 0]
    assert len(data.train.classes) == 62
    assert data.train.domain_names == data.test.domain_names == ("f01", "f02", "f03", "f04")
    assert data.train.domains.tolist() == [1, 1, 1, 0, 0, 2]
    assert data.test.domains.tolist() == [3, 3, 0]


def test_leafs_pixels_lie_row_by_row(tmp_path):
    write_leaf(tmp_path / "mine" / "all_data_0.json", {"f01": {"x": [[0, 0.2, 0.6, 1]], "y": [0]}})
    assert load(tmp_path / "mine").train.inputs[0, :, :, 0].tolist() == [[0, 51], [153, 255]]


def test_a_folder_of_json_alone_or_one_file_has_no_test_set(tmp_path):
    file = write_leaf(tmp_path / "mine" / "all_data_0.json", {"f01": user(3)})
    for source in (tmp_path / "mine", file, {"name": "leaf", "path": tmp_path / "mine"}):
        assert load(source).test is None
        assert len(load(source).train) == 3
    assert load(tmp_path / "mine").name == "mine"


def test_digits_of_leaf_and_their_size(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", {"f01": user(2, side=28, first=9), "f02": user(2, side=28, first=20)})
    data = load(tmp_path, characters="digits", size=14)
    assert data.train.labels.tolist() == [9]
    assert data.train.domain_names == ("f01",)
    assert data.train.shape == (1, 14, 14)
    assert load(tmp_path).train.shape == (1, 28, 28)


def test_json_is_read_once_and_again_if_it_changed(tmp_path, monkeypatch):
    file = write_leaf(tmp_path / "train" / "a.json", {"f01": user(2)})
    first = load(tmp_path)
    monkeypatch.setattr("json.loads", None)
    again = load(tmp_path)
    for part in ("inputs", "labels", "domains"):
        assert np.array_equal(getattr(first.train, part), getattr(again.train, part))
    assert isinstance(again.train.inputs.base, np.memmap)
    monkeypatch.undo()
    write_leaf(file, {"f01": user(3)})
    assert len(load("leaf", path=tmp_path).train) == 3


def test_a_user_without_examples_is_left_out(tmp_path):
    write_leaf(tmp_path / "a.json", {"f01": user(0), "f02": user(2)})
    assert load(tmp_path / "a.json").train.domain_names == ("f02",)


ONE = {"f01": user(2)}


@pytest.mark.parametrize(
    ("users", "changes", "message"),
    [
        (ONE, {"users": ["f01", "f02"], "num_samples": [2, 1]}, "user 'f02' is in 'users', but not in 'user_data'"),
        (
            {**ONE, "f02": user(1)},
            {"users": ["f01"], "num_samples": [2]},
            "'f02' is in 'user_data', but not in 'users'",
        ),
        (ONE, {"num_samples": [3]}, "user 'f01' has 2 images and 2 labels, but num_samples is 3"),
        (
            {"f01": {**user(2), "y": [0]}},
            {"num_samples": [2]},
            "user 'f01' has 2 images and 1 labels, but num_samples is 2",
        ),
        ({"f01": {"y": [0]}}, {}, "user 'f01' has 0 images and 1 labels"),
        (ONE, {"num_samples": [2, 1]}, "found 1 users and 2 numbers"),
        (ONE, {"users": ["f01", "f01"], "num_samples": [2, 2]}, "user 'f01' is listed twice"),
        (ONE, {"users": None}, "expected LEAF's keys users, num_samples, user_data, but 'users' is missing"),
        (ONE, {"user_data": []}, "'user_data' is missing or no dict"),
        ({"f01": {"x": ["to be", "or not"], "y": [0, 1]}}, {}, "'f01': expected images as lists of 784 numbers"),
        ({"f01": {"x": [[0, 1, 0]], "y": [0]}}, {}, "'f01': expected images as lists of 784 numbers"),
        ({"f01": {"x": [[0, 1, 0, 255]], "y": [0]}}, {}, "numbers from 0 to 1"),
        ({"f01": {"x": [[0, 1, 0, 1], [0]], "y": [0, 1]}}, {}, "numbers from 0 to 1"),
        (
            {"f01": {"x": [[0, 1, 0, 1]], "y": [0.5]}},
            {},
            "'f01': expected whole numbers from 0 to 61 as labels, found 0.5",
        ),
        ({"f01": user(2, first=61)}, {}, "labels out of range: expected 0 to 61, found 61 to 62"),
        ({"f01": user(1, side=2), "f02": user(1, side=3)}, {}, r"expected images of one size, found \[2, 3\]"),
        ({}, {}, "expected images of one size, found none"),
    ],
)
def test_what_does_not_fit_is_one_line_with_the_place(tmp_path, users, changes, message):
    file = write_leaf(tmp_path / "train" / "a.json", users, **changes)
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(str(file.parent))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2", "[1, 2]"])
def test_what_is_no_json_of_leaf(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a.json: expected"):
        load(tmp_path / "a.json")


def test_json_beside_parquet_or_images_is_not_leafs(tmp_path):
    write_parquet(tmp_path / "hub" / "train.parquet", [0, 1])
    (tmp_path / "hub" / "dataset_infos.json").write_text("{}")
    assert len(load(tmp_path / "hub").train) == 2
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "notes.json").write_text("{}")
    with pytest.raises(DataError, match=r"expected images in class_name/image.png"):
        load(tmp_path / "pets")


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_no_json_at_all(path):
    with pytest.raises(DataError, match="expected LEAF's JSON files in train/ and test/ or alone, found none"):
        load("leaf", path=path)


@pytest.mark.parametrize("name", ["femnist", "leaf"])
def test_unknown_characters_are_one_line(name):
    with pytest.raises(ConfigError, match="characters: input should be 'all' or 'digits', found 'letters'"):
        load(name, characters="letters", **({"path": "."} if name == "leaf" else {}))


def test_writers_make_clients_of_their_own(tmp_path):
    write_hub(tmp_path)
    federation = load("femnist").partition("leave_one_domain_out", held_out="f03")
    assert federation.client_names == ("f01", "f02")
    assert "characters" in sources.get("femnist").model_fields
