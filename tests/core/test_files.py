import os

import pytest

from fedpace.core import folder_written_aside, written_aside


def torn(writing):
    with writing as aside:
        (aside / "half").touch() if aside.is_dir() else aside.write_text("ha")
        raise OSError("disk full")


def test_a_file_that_cannot_be_finished_leaves_the_one_before(tmp_path):
    target = tmp_path / "note.txt"
    target.write_text("before")
    with pytest.raises(OSError, match="disk full"):
        torn(written_aside(target))
    assert (os.listdir(tmp_path), target.read_text()) == (["note.txt"], "before")


def test_a_folder_that_cannot_be_finished_leaves_the_one_before(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(OSError, match="disk full"):
        torn(folder_written_aside(tmp_path / "notes"))
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "notes")) == (["notes"], [])


def test_a_folder_takes_the_place_of_the_one_before_without_what_a_killed_process_left(tmp_path):
    (tmp_path / "deep" / "notes" / "old").mkdir(parents=True)
    left = tmp_path / "deep" / f".notes.writing-{os.getpid()}" / "left"
    left.mkdir(parents=True)
    with folder_written_aside(tmp_path / "deep" / "notes") as aside:
        (aside / "new").touch()
    assert (os.listdir(tmp_path / "deep"), os.listdir(tmp_path / "deep" / "notes")) == (["notes"], ["new"])
