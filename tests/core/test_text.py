import numpy as np
import pytest
import torch
from rich.text import Text

from fedpace.core import FedpaceError, Update, for_figure, for_markdown, for_terminal, one_line, printable, shown, slug
from fedpace.core.update import LONGEST_FAILURE

HOSTILE = "a\x1b[31m<b>[red]|`x`](http://y)\x07\u202e\r\n$z$ \x00"


@pytest.mark.parametrize("made", [printable, one_line, for_terminal, for_markdown, for_figure, slug])
def test_no_control_character_is_left(made):
    assert made(HOSTILE).isprintable()


def test_ordinary_names_stay_as_they_are():
    for name in ("Fürth", "north-west", "τ = 0.4", "日本", "gma (mine)"):
        assert {made(name) for made in (printable, one_line, for_terminal, for_markdown, for_figure)} == {name}


def test_a_terminal_shows_brackets_and_obeys_none():
    shown = Text.from_markup(for_terminal("[red]a[/] [link=http://x]b"))
    assert shown.plain == "[red]a[/] [link=http://x]b"
    assert shown.spans == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/root", ".bashrc", "a/../b", "", "-", "x" * 999, "\0"])
def test_a_slug_is_one_visible_file_in_its_folder(name, tmp_path):
    path = (tmp_path / slug(name)).resolve()
    assert path.parent == tmp_path
    assert not path.name.startswith(".")
    path.write_text("written")


def test_messages_are_printable():
    assert str(FedpaceError("no \x1b[2Jclient\n'a'")) == "no \\x1b[2Jclient 'a'"


def test_what_a_client_says_of_its_failure_is_one_short_line():
    failure = Update(0, failure="x\n" * 10**6 + "\x1b").failure
    assert failure.isprintable()
    assert len(failure) == LONGEST_FAILURE
    assert Update(0, failure="too big").failure == "too big"
    assert Update(0).failure is None


def test_a_message_holds_neither_frames_nor_arrays():
    error = RuntimeError(
        f"not equal: {np.arange(6).reshape(2, 3)} and {torch.zeros(2, 3)}\n"
        "Exception raised from check at ATen/native.cpp:12 (most recent call first):\n"
        "frame #0: c10::Error::Error + 0x57 (0x7f1 in libc10.so)\n"
        'Traceback (most recent call last):\n  File "mine.py", line 3, in build\n    return made(3)\nthe end'
    )
    assert one_line(error) == "not equal: […] and tensor([…]) the end"
    assert str(FedpaceError(f"mine: {error}")) == "mine: not equal: […] and tensor([…]) the end"


def test_names_and_short_lists_stay_as_they_are():
    assert one_line("[red] [1, 2] [1.5 nan]") == "[red] [1, 2] [1.5 nan]"
    assert one_line("client [1\nof 3]") == "client [1 of 3]"


def test_a_hostile_text_is_searched_in_time():
    assert one_line("[" * 200_000 + "\n").startswith("[[[")


def test_a_value_in_a_message_is_short():
    assert shown(np.zeros((3, 4))) == "ndarray of shape (3, 4)"
    assert shown({"a": torch.zeros(2)}) == "{'a': Tensor of shape (2,)}"
    assert len(shown("x" * 10_000)) < 200
