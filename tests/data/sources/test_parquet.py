import logging
import os

import numpy as np
import pytest

from fedpace.core import DataError
from fedpace.data import load
from fedpace.data.sources import _images

from ..helpers import png, write_parquet


@pytest.fixture
def decoded(monkeypatch):
    """Counts how many images are decoded."""
    calls = []
    decode = _images._decode
    monkeypatch.setattr(_images, "_decode", lambda *arguments: calls.append(1) or decode(*arguments))
    return calls


def test_a_folder_with_train_and_test(tmp_path):
    write_parquet(tmp_path / "mine" / "train.parquet", [0, 2, 1])
    write_parquet(tmp_path / "mine" / "test.parquet", [1], images=[png(200)])
    data = load(tmp_path / "mine")
    assert data.name == "mine"
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert data.train.labels.tolist() == [0, 2, 1]
    assert data.train.classes == data.test.classes == ("0", "1", "2")
    assert data.test.inputs.max() == 200


@pytest.mark.parametrize(
    "names", [("train-{}-of-2.parquet", "validation-0-of-1.parquet"), ("data/train-{}.parquet", "data/test-0.parquet")]
)
def test_names_of_the_hub(tmp_path, names):
    train, test = names
    for part in range(2):
        write_parquet(
            tmp_path / train.format(part), [part, part], images=[png(part)] * 2, image="img", label="fine_label"
        )
    write_parquet(tmp_path / test, [1])
    data = load(tmp_path)
    assert data.train.labels.tolist() == data.train.inputs[:, 0, 0, 0].tolist() == [0, 0, 1, 1]
    assert len(data.test) == 1


def test_one_file_with_strings_as_labels_and_domains(tmp_path):
    data = load(write_parquet(tmp_path / "pets.parquet", ["dog", "cat", "dog"], domain=["photo", "sketch", "photo"]))
    assert data.test is None
    assert data.train.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.train.domain_names == ("photo", "sketch")
    assert data.train.domains.tolist() == [0, 1, 0]


def test_size_resizes_and_grey_among_colours_becomes_colour(tmp_path):
    file = write_parquet(tmp_path / "x.parquet", [0, 1], images=[png(9, side=5), png((1, 2, 3), side=7, mode="RGB")])
    data = load(file, size=6)
    assert data.train.shape == (3, 6, 6)
    assert data.train.inputs[:, 0, 0].tolist() == [[9, 9, 9], [1, 2, 3]]


def test_images_of_different_sizes_need_a_size(tmp_path):
    file = write_parquet(tmp_path / "x.parquet", [0, 1], images=[png(0, side=5), png(0, side=7)])
    with pytest.raises(
        DataError, match=r"row 1 of .*x.parquet: image of 7 × 7 pixels, but the first has 5 × 5; set size"
    ):
        load(file)


def test_a_truncated_file_is_named(tmp_path):
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"x.parquet: expected a complete parquet file") as caught:
        load(file)
    assert "\n" not in str(caught.value)


def test_an_unreadable_image_is_named_by_row_and_file(tmp_path):
    file = write_parquet(tmp_path / "x.parquet", [0, 1, 2], images=[png(0), b"no image", None])
    with pytest.raises(DataError, match=r"row 1 of .*x.parquet: expected an encoded image"):
        load(file)


def test_a_cut_image_is_named_by_row_and_file(tmp_path):
    file = write_parquet(tmp_path / "x.parquet", [0, 1], images=[png(0), png(7, side=64)[:80]])
    with pytest.raises(DataError, match=r"row 1 of .*x.parquet"):
        load(file)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "picture"}, "expected a column 'image or img', found picture, label"),
        ({"label": "y"}, "expected a column 'label or fine_label', found image, y"),
    ],
)
def test_a_missing_column_is_named(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        load(write_parquet(tmp_path / "x.parquet", [0, 1], **columns))


def test_labels_below_zero_and_missing_labels_name_the_file(tmp_path):
    with pytest.raises(DataError, match=r"a.parquet: labels out of range: .*found -1 to 1"):
        load(write_parquet(tmp_path / "a.parquet", [-1, 1]))
    with pytest.raises(
        DataError, match=r"b.parquet: column .label.: expected a value in each row, found 1 rows without"
    ):
        load(write_parquet(tmp_path / "b.parquet", [None, 1]))


def test_a_folder_without_anything(tmp_path):
    with pytest.raises(DataError, match=r"expected a parquet file, or a folder with train\.parquet"):
        load("parquet", path=tmp_path)


def test_images_are_decoded_once_and_mapped(tmp_path, decoded):
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    first, second = load(file), load(file)
    assert len(decoded) == 2
    assert isinstance(second.train.inputs.base, np.memmap)
    assert np.array_equal(first.train.inputs, second.train.inputs)


def test_a_changed_file_or_size_is_decoded_again(tmp_path, decoded):
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    load(file)
    write_parquet(file, [0, 1, 1])
    assert len(load(file).train.inputs) == 3
    assert load(file, size=2).train.shape == (1, 2, 2)
    assert len(decoded) == 2 + 3 + 3


def test_a_file_of_another_time_is_decoded_again(tmp_path, decoded):
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    load(file)
    os.utime(file, (1, 1))
    load(file)
    assert len(decoded) == 4


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * len(data)])
def test_a_damaged_cache_is_rebuilt(tmp_path, decoded, damage):
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    load(file)
    (kept,) = (tmp_path / "cache" / "decoded").iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert load(file).train.inputs[:, 0, 0, 0].tolist() == [0, 1]
    load(file)
    assert len(decoded) == 4


def test_without_a_cache_folder_images_stay_in_memory(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "file"))
    file = write_parquet(tmp_path / "x.parquet", [0, 1])
    with caplog.at_level(logging.WARNING, logger="fedpace"):
        assert load(file).train.inputs[:, 0, 0, 0].tolist() == [0, 1]
    assert len(caplog.messages) == 1
    assert "decoded images stay in memory" in caplog.messages[0]
