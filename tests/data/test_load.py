from pathlib import Path

import numpy as np
import pytest
import torch

from fedpace.core import ConfigError, DataError
from fedpace.data import Examples, load, sources
from fedpace.data.sources import Digits

from .helpers import write_parquet


def test_sources_and_loaded_data_are_taken_as_they_are():
    data = load(Digits(size=16))
    assert data.train.shape == (1, 16, 16)
    assert load(data) is data
    assert load({"name": "digits", "size": 16}).train.shape == (1, 16, 16)


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        (np.zeros((4, 5, 6), np.uint8), (1, 5, 6)),
        (np.zeros((4, 5, 6, 3), np.uint8), (3, 5, 6)),
        (torch.zeros((4, 3, 5, 6), dtype=torch.uint8), (3, 5, 6)),
        (torch.zeros((4, 7), dtype=torch.float64), (7,)),
    ],
)
def test_arrays_and_tensors(inputs, shape):
    data = load((inputs, torch.tensor([0, 1, 2, 2])))
    assert data.train.shape == shape
    assert data.train.classes == ("0", "1", "2")


def test_channels_first_images_keep_their_pixels():
    image = np.arange(2 * 3 * 5 * 6, dtype=np.uint8).reshape(2, 3, 5, 6)
    shard = load((image, ["a", "b"]), test=(image, ["b", "b"])).partition("iid", clients=1).test
    torch.testing.assert_close(shard.batch(slice(None))[0], torch.tensor(image) / 127.5 - 1)
    assert shard.labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("source", "parameters", "error", "message"),
    [
        ("digitss", {}, ConfigError, "unknown data source 'digitss'; did you mean 'digits'?"),
        ("digits", {"siz": 3}, ConfigError, "unknown key 'siz'; did you mean 'size'?"),
        ("digits", {"size": 0}, ConfigError, "size: input should be greater than or equal to 1, found 0"),
        ("nowhere/train.parquet", {}, DataError, "nowhere/train.parquet: no such file or folder"),
        (Path("nowhere.parquet"), {}, DataError, "nowhere.parquet: no such file or folder"),
        ((np.zeros((2, 3)), [0.5, np.nan]), {}, DataError, "targets: expected numbers, found NaN"),
        (({"a": np.zeros((2, 3)), "b": np.zeros((3, 3))}, [0, 1]), {}, DataError, "as many examples of each"),
        ((np.zeros((2, 3)), [0, 1], None), {}, DataError, "expected a pair"),
        ((np.zeros((2, 3)), [0, 1]), {"size": 3}, ConfigError, r"unknown parameters \['size'\]"),
        (Digits(), {"size": 3}, ConfigError, r"unknown parameters \['size'\]"),
        (3, {}, ConfigError, "expected a name or a table with 'name', found 3"),
    ],
)
def test_a_wrong_source_is_one_line(source, parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        load(source, **parameters)
    assert "\n" not in str(caught.value)


def test_a_registered_name_wins_over_a_folder(tmp_path):
    write_parquet(tmp_path / "digits" / "train.parquet", [0, 1])
    assert len(load("digits").train) == 1438
    assert len(load("./digits").train) == 2


def test_every_registered_source_has_a_docstring_and_a_name():
    for name in sources.names():
        assert "Parameters:" in sources.get(name).__doc__
        assert sources.get(name).registered_name() == name


def test_a_source_of_the_users_own_is_imported_by_its_path():
    data = load(f"{__name__}:Own")
    assert data.name == "own"


class Own(Digits):
    def load(self):
        from fedpace.data import Data

        return Data("own", Examples(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), ("0",)))
