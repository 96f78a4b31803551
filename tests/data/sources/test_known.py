import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedpace.core import DataError
from fedpace.data import load, sources
from fedpace.data.sources import Cifar10, KnownImages

from ..helpers import on_disk, png, write_parquet

KNOWN = [name for name in sources.names() if issubclass(sources.get(name), KnownImages)]


@pytest.mark.parametrize("place", ["given", "data", "cache/data"])
def test_data_are_found_in_each_place(tmp_path, monkeypatch, place):
    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path / "given"))
    write_parquet(tmp_path / place / "cifar10" / "train.parquet", [0, 9])
    data = load("cifar10")
    assert data.name == "cifar10"
    assert data.train.classes == Cifar10.classes


def test_the_first_place_wins(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path / "given"))
    write_parquet(tmp_path / "given" / "mnist" / "train.parquet", [0])
    write_parquet(tmp_path / "data" / "mnist" / "train.parquet", [0, 1])
    assert len(load("mnist").train) == 1


def test_labels_that_the_data_set_does_not_have(tmp_path):
    write_parquet(tmp_path / "data" / "pacs" / "train.parquet", [0, 7])
    with pytest.raises(DataError, match=r"train.parquet: labels out of range: expected 0 to 6, found 0 to 7"):
        load("pacs")


def test_labels_as_strings_are_numbered_by_the_known_classes(tmp_path):
    write_parquet(tmp_path / "data" / "pacs" / "train.parquet", ["person", "house", "house"])
    assert load("pacs").train.labels.tolist() == [6, 5, 5]
    write_parquet(tmp_path / "data" / "pacs" / "train.parquet", ["person", "houses"])
    with pytest.raises(DataError, match=r"train.parquet: labels: unknown name 'houses'; did you mean 'house'?"):
        load("pacs")


def test_cifar100_has_the_fine_labels(tmp_path):
    columns = {"image": "img", "label": "fine_label", "coarse_label": [4, 13, 5]}
    for split in ("train", "test"):
        write_parquet(tmp_path / "data" / "cifar100" / f"{split}.parquet", [0, 99, 39], **columns)
    data = load("cifar100")
    assert len(data.train.classes) == 100
    assert [data.test.classes[label] for label in data.test.labels] == ["apple", "worm", "keyboard"]


def test_tiny_imagenet_is_tested_on_its_validation_set(tmp_path):
    images = [png((9, 8, 7), mode="RGB"), png(5)]  # a few are grey
    write_parquet(tmp_path / "data" / "tiny_imagenet" / "train.parquet", [0, 199], images=images)
    write_parquet(tmp_path / "data" / "tiny_imagenet" / "valid.parquet", [7], images=images[:1])
    data = load("tiny_imagenet")
    assert data.train.shape == (3, 4, 4)
    assert len(data.test.classes) == 200
    assert data.test.labels.tolist() == [7]
    write_parquet(tmp_path / "data" / "tiny_imagenet" / "train.parquet", [0, 200], images=images)
    with pytest.raises(DataError, match="labels out of range: expected 0 to 199, found 0 to 200"):
        load("tiny_imagenet")


def test_flowers102_are_resized(tmp_path):
    images = [png((9, 8, 7), side, mode="RGB") for side in (70, 50)]  # each photograph has its own size
    for split in ("train", "test"):
        write_parquet(tmp_path / "data" / "flowers102" / f"{split}.parquet", [0, 101], images=images)
    assert load("flowers102").test.shape == (3, 64, 64)
    assert load("flowers102", size=32).train.shape == (3, 32, 32)
    assert len(load("flowers102").train.classes) == 102
    write_parquet(tmp_path / "data" / "flowers102" / "train.parquet", [1, 102], images=images)
    with pytest.raises(DataError, match="labels out of range: expected 0 to 101, found 1 to 102"):
        load("flowers102")


@pytest.mark.parametrize("name", KNOWN)
def test_missing_data_say_where_they_were_looked_for_and_how_to_get_them(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "datasets", None)  # not installed
    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path / "given"))
    with pytest.raises(DataError) as caught:
        load(name)
    message = str(caught.value)
    for part in (f"{tmp_path}/given/{name}", f"data/{name}", f"{tmp_path}/cache/data/{name}", "fedpace[hub]"):
        assert part in message
    assert "\n" not in message


def fake_hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))


def test_download_goes_to_the_cache_once(tmp_path, monkeypatch):
    asked = []

    def load_dataset(repository):
        asked.append(repository)
        split = lambda labels: SimpleNamespace(to_parquet=lambda path: write_parquet(Path(path), labels))  # noqa: E731
        return {"train": split([0, 1, 2]), "test": split([3])}

    fake_hub(monkeypatch, load_dataset)
    first, second = load("mnist"), load("mnist")
    assert asked == ["ylecun/mnist"]
    assert len(first.train) == len(second.train) == 3
    assert second.test.labels.tolist() == [3]
    assert sorted(os.listdir(tmp_path / "cache" / "data" / "mnist")) == ["test.parquet", "train.parquet"]


def test_half_a_download_is_never_read(tmp_path, monkeypatch):
    def fail(path):
        raise ConnectionError("the line\nwent dead")

    def load_dataset(repository):
        good = SimpleNamespace(to_parquet=lambda path: write_parquet(Path(path), [0]))
        return {"train": good, "test": SimpleNamespace(to_parquet=fail)}

    fake_hub(monkeypatch, load_dataset)
    with pytest.raises(DataError, match=r"'ylecun/mnist': cannot be stored in .*the line went dead"):
        load("mnist")
    assert os.listdir(tmp_path / "cache" / "data") == []


@pytest.mark.parametrize("name", [on_disk("cifar10"), on_disk("mnist"), on_disk("fashion_mnist")])
def test_real_images(real_data, name):
    data = load(name)
    train, test, shape = {"cifar10": (50000, 10000, (3, 32, 32))}.get(name, (60000, 10000, (1, 28, 28)))
    assert (len(data.train), len(data.test), data.train.shape) == (train, test, shape)
    counts = np.bincount(data.train.labels)
    assert len(counts) == 10
    assert counts.min() > 5000 if name == "mnist" else set(counts) == {train // 10}
    assert 0 < data.train.inputs[::500].mean() < 255


@pytest.mark.parametrize("name", [on_disk("pacs")])
def test_real_domains(real_data, name):
    data = load(name)
    assert data.train.shape == (3, 64, 64)
    assert data.train.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(data.train.domains).tolist() == [2048, 2344, 1670, 3929]
    federation = data.partition("leave_one_domain_out", held_out="sketch")
    assert federation.client_names == ("art_painting", "cartoon", "photo")
    assert len(federation.test) == 3929
