import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fedpace.core import DataError
from fedpace.data import Data, counts_json, counts_table, load, picture, save_counts_figure, save_examples_figure

from .helpers import toy


def printed(federation):
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(counts_table(federation))
    return console.file.getvalue()


@pytest.mark.parametrize("clients", [1, 4])
def test_few_clients_show_every_count_and_a_bar_without_colour(clients):
    federation = load("digits").partition("dirichlet", clients=clients)
    text = printed(federation)
    assert all(str(count) in text for count in federation.counts().ravel())
    assert "████████" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_bar_is_as_long_as_its_share():
    lines = printed(
        Data("two", toy([0] * 64 + [1] * 32 + [2]), toy([0, 1, 2])).partition("iid", clients=1)
    ).splitlines()
    assert [line.count("█") for line in lines if "█" in line] == [8, 4]
    assert any("1 ▏" in line for line in lines)


def test_many_clients_and_classes_fit_on_a_screen():
    labels = np.arange(4000) % 40
    lines = printed(Data("many", toy(labels), toy(labels)).partition("shards", clients=200)).splitlines()
    assert len(lines) < 40
    assert any("30 of them shown" in line for line in lines)
    rows = [line for line in lines if "·" in line]
    assert len(rows) == 30
    assert all(set(row) & set("▁▂▃▄▅▆▇█") for row in rows)


@pytest.mark.parametrize("clients", [3, 60])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_figure_is_saved(clients, suffix, tmp_path):
    path = tmp_path / f"counts.{suffix}"
    save_counts_figure(load("digits").partition("iid", clients=clients), path)
    if suffix == "png":
        assert len(set(Image.open(path).convert("L").tobytes())) > 10
    else:
        assert path.read_text().endswith("</svg>\n")


def test_of_very_many_clients_some_are_drawn_and_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "MOST_DRAWN", 50)
    monkeypatch.setattr(picture, "MOST_LISTED", 20)
    federation = load("digits").partition("iid", clients=700)
    save_counts_figure(federation, tmp_path / "counts.svg")
    assert "client (50 of 700 shown)" in (tmp_path / "counts.svg").read_text()
    found = counts_json(federation)
    assert (found["clients"], found["examples"]) == (700, {"all": 1438, "least": 2, "most": 3})
    assert len(found["counts"]) == 20
    assert found["counts"]["699"] == federation.counts()[-1].tolist()


def test_an_unknown_format_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"ends in .pdf, .png, .svg, found '.doc'"):
        save_counts_figure(load("digits").partition("iid"), tmp_path / "counts.doc")


def colourful(path):
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return (np.ptp(pixels, axis=2) > 100).mean()


def test_examples_are_drawn_as_clients_see_them(tmp_path):
    digits = load("digits")
    for shift in (None, "coloured"):
        save_examples_figure(digits.partition("iid", clients=3, shift=shift), tmp_path / "new" / f"{shift}.png")
    assert colourful(tmp_path / "new" / "None.png") == 0
    assert colourful(tmp_path / "new" / "coloured.png") > 0.02


def test_examples_of_many_clients_with_few_classes_fit(tmp_path):
    federation = load("digits").partition("shards", clients=200, classes_per_client=1, shift="rotated")
    save_examples_figure(federation, tmp_path / "many.png")
    with Image.open(tmp_path / "many.png") as picture:
        assert max(picture.size) < 1500


@pytest.mark.parametrize("name", ["pictures.doc", "pictures.png"])
def test_vectors_and_unknown_formats_are_refused(tmp_path, name):
    message = "ends in .pdf" if name.endswith("doc") else r"expected images with 1 or 3 channels, found shape \(1,\)"
    with pytest.raises(DataError, match=message):
        save_examples_figure(Data("two", toy([0, 1] * 9), toy([0, 1])).partition("iid", clients=1), tmp_path / name)


@pytest.mark.parametrize("clients", [3, 8, 60])
def test_data_without_classes_are_counted_together(clients, tmp_path):
    federation = load("diabetes").partition("iid", clients=clients)
    text = printed(federation)
    assert all(str(len(client)) in text for client in federation.clients)
    assert set(text) & set("▇█")
    save_counts_figure(federation, tmp_path / "counts.png")
    assert (tmp_path / "counts.png").stat().st_size > 1000
