import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fedpace.core import DataError
from fedpace.data import Data, counts_table, load, save_counts_figure

from .helpers import toy


def printed(federation):
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(counts_table(federation))
    return console.file.getvalue()


def test_the_table_shows_every_count_without_colour():
    federation = load("digits").partition("dirichlet", clients=4)
    text = printed(federation)
    assert all(str(count) in text for count in federation.counts().ravel() if count)
    assert "█" in text
    assert "·" in text


def test_many_clients_and_classes_fit_on_a_screen():
    labels = np.arange(4000) % 40
    lines = printed(Data("many", toy(labels), toy(labels)).partition("shards", clients=200)).splitlines()
    assert len(lines) < 40
    assert any("30 of 200 clients" in line for line in lines)


def test_the_most_examples_are_the_highest_block():
    text = printed(Data("two", toy([0] * 99 + [1]), toy([0, 1])).partition("iid", clients=1))
    assert "99 █" in text
    assert "1 ▁" in text


@pytest.mark.parametrize("clients", [3, 60])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_figure_is_saved(clients, suffix, tmp_path):
    path = tmp_path / f"counts.{suffix}"
    save_counts_figure(load("digits").partition("iid", clients=clients), path)
    if suffix == "png":
        assert len(set(Image.open(path).convert("L").tobytes())) > 10
    else:
        assert path.read_text().endswith("</svg>\n")


def test_an_unknown_format_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"ends in .pdf, .png, .svg, found '.doc'"):
        save_counts_figure(load("digits").partition("iid"), tmp_path / "counts.doc")
