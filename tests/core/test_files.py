import errno
import os

import pytest
import torch
from safetensors.torch import load_file

from fedpace.core import Disk, RunFolderError, Writer, folder_written_aside, write_text, writing, written_aside


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


@pytest.fixture
def operations(monkeypatch):
    """What is done to the disk, with the names of files."""
    done = []
    for name in ("make_folder", "write", "save", "append", "sync", "rename", "remove"):
        real = getattr(Disk, name)

        def operate(disk, path, *more, name=name, real=real):
            done.append((name, path.name.replace(str(os.getpid()), "PID")))
            real(disk, path, *more)

        monkeypatch.setattr(Disk, name, operate)
    return done


def test_a_file_is_written_aside_and_waits_for_the_disk_if_it_is_asked_to(tmp_path, operations):
    aside, folder = ".note.txt.writing-PID", tmp_path.name
    Writer().write(tmp_path / "note.txt", b"one")
    assert operations == [("write", aside), ("rename", aside)]
    operations.clear()
    Writer("power").write(tmp_path / "note.txt", b"two")
    assert operations == [("write", aside), ("sync", aside), ("rename", aside), ("sync", folder)]
    assert (tmp_path / "note.txt").read_bytes() == b"two"


def test_a_line_is_appended_and_waits_for_the_disk_if_it_is_asked_to(tmp_path, operations):
    Writer().append(tmp_path / "lines", b"one\n")
    Writer("power").append(tmp_path / "lines", b"two\n")
    assert operations == [("append", "lines"), ("append", "lines"), ("sync", "lines")]
    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\n"


def test_all_of_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, operations):
    writer, aside = Writer("power"), ".state.writing-PID"
    with writer.new_folder(tmp_path / "state") as folder:
        writer.save_new(folder / "a", {"vector": torch.ones(3)})
        writer.write_new(folder / "b", b"2")
    assert operations == [
        ("make_folder", aside), ("save", "a"), ("sync", "a"), ("sync", aside), ("write", "b"), ("sync", "b"),
        ("sync", aside), ("rename", aside), ("sync", tmp_path.name),
    ]  # fmt: skip
    assert torch.equal(load_file(tmp_path / "state" / "a")["vector"], torch.ones(3))


def test_folders_that_are_made_have_their_names_on_the_disk(tmp_path, operations):
    Writer("power").make_folder(tmp_path / "a" / "b")
    assert operations == [("make_folder", "a"), ("sync", tmp_path.name), ("make_folder", "b"), ("sync", "a")]
    Writer("power").make_folder(tmp_path / "a" / "b")
    assert len(operations) == 4


def test_what_a_killed_process_left_is_cleared_and_nothing_else(tmp_path):
    for name in (".note.txt.writing-7", ".note.txt.writing", "note.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / ".notes.writing-7").mkdir()
    Writer().clear(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", ".note.txt.writing", "note.txt"]


@pytest.mark.parametrize(
    ("number", "remains", "message"),
    [
        (errno.ENOSPC, "", "it: cannot be written (No space left on device); free some space"),
        (errno.ENOSPC, "all is safe", "it: cannot be written (No space left on device); all is safe; free some space"),
        (errno.EROFS, "", "it: cannot be written (Read-only file system)"),
        (errno.EACCES, "all is safe", "it: cannot be written (Permission denied); all is safe"),
    ],
)
def test_an_error_of_the_disk_is_one_line(number, remains, message):
    with pytest.raises(RunFolderError) as caught, writing("it", remains):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == message


def test_a_text_is_written_with_the_folders_above_it(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "ä")
    assert (tmp_path / "a" / "b.txt").read_text(encoding="utf-8") == "ä"
    with pytest.raises(RunFolderError, match=r"b.txt/c.txt: cannot be written"):
        write_text(tmp_path / "a" / "b.txt" / "c.txt", "")


@pytest.mark.parametrize(("path", "number"), [("none/a", errno.ENOENT), ("note.txt/a", errno.ENOTDIR)])
def test_what_the_disk_says_of_tensors_is_an_error_of_the_disk(tmp_path, path, number):
    (tmp_path / "note.txt").touch()
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        Disk().save(tmp_path / path, {"vector": torch.ones(3)})
    assert caught.value.errno == number
