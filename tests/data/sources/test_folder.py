import pytest

from fedpace.core import DataError
from fedpace.data import load

from ..helpers import png


def write(path, value=0, side=4):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(value, side))


def test_classes_are_folders(tmp_path):
    write(tmp_path / "pets" / "dog" / "a.png", 1)
    write(tmp_path / "pets" / "cat" / "b.PNG", 2)
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not an image")
    data = load(tmp_path / "pets")
    assert data.name == "pets"
    assert data.train.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 1]
    assert data.train.inputs[:, 0, 0, 0].tolist() == [2, 1]
    assert data.test is None


def test_train_and_test_folders_share_class_numbers(tmp_path):
    for name in ("train/cat/a", "train/dog/a", "test/dog/b"):
        write(tmp_path / f"{name}.png")
    data = load(tmp_path)
    assert data.train.labels.tolist() == [0, 1]
    assert data.test.labels.tolist() == [1]


def test_images_are_resized(tmp_path):
    write(tmp_path / "cat" / "a.png", side=3)
    write(tmp_path / "cat" / "b.png", side=9)
    assert load(tmp_path, size=5).train.shape == (1, 5, 5)


def test_an_unreadable_image_is_named(tmp_path):
    write(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "b.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"cat/b.png: expected an encoded image"):
        load(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"expected images in class_name/image.png, found none"):
        load(tmp_path)
