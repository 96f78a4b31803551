"""Files and folders that are whole or not there at all: how all of a run reaches the disk."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedpace.core.errors import RunFolderError
from fedpace.core.text import one_line

if TYPE_CHECKING:
    from torch import Tensor

Durability = Literal["process", "power"]
"""What finished rounds survive: the end of the ``process``, or also a failure of the ``power``.

For the latter each write waits until the disk has it. On an ordinary disk this took 30 to 50 ms a round, whatever the
size of the model, and 20 ms more for each client that keeps a state.
"""

_ASIDE = ".{}.writing-{}"


class Disk:
    """What can be done to a disk, one operation each. Nothing of a run is written in another way."""

    def make_folder(self, path: Path) -> None:
        """Make one folder; it may be there already."""
        path.mkdir(exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file."""
        path.write_bytes(data)

    def save(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write tensors into a file, from where they are: a copy of their bytes takes four times as long."""
        from safetensors import SafetensorError  # here, because readers of a run need no torch
        from safetensors.torch import save_file

        try:
            save_file(dict(tensors), path)
        except SafetensorError as error:  # it tells what the disk says in words
            number = re.search(r"os error (\d+)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code)) from error

    def append(self, path: Path, data: bytes) -> None:
        """Write at the end of a file."""
        with path.open("ab") as file:
            file.write(data)

    def sync(self, path: Path) -> None:
        """Wait until a file, or the list of names in a folder, is where a power failure leaves it alone."""
        if os.name == "nt" and path.is_dir():
            return  # Windows has no such thing for folders
        handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or a folder another name; a file of that name is replaced."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; it may be gone already."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Writer:
    r"""Writes the files of a run, and waits for the disk if the run asks for it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     writer, notes = Writer(durability="power"), Path(folder, "notes")
    ...     with writer.new_folder(notes) as aside:
    ...         writer.write_new(aside / "note.txt", b"one line\n")
    ...     writer.append(notes / "note.txt", b"and another")
    ...     os.listdir(folder), os.listdir(notes), Path(notes, "note.txt").read_text()
    (['notes'], ['note.txt'], 'one line\nand another')
    """

    durability: Durability = "process"
    disk: Disk = field(default_factory=Disk)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it."""
        if not path.parent.exists():
            self.make_folder(path.parent)
        if not path.is_dir():
            self.disk.make_folder(path)
            self._sync(path.parent)

    def write(self, target: Path, data: bytes) -> None:
        """Write a file: what was there before is there until all of it is written."""
        with written_aside(target, self.disk) as aside:
            self.disk.write(aside, data)
            self._sync(aside)
        self._sync(target.parent)

    def write_new(self, target: Path, data: bytes) -> None:
        """Write a file that nobody refers to yet, so that it does no harm if half of it is there."""
        self.disk.write(target, data)
        self._sync(target, target.parent)

    def save_new(self, target: Path, tensors: Mapping[str, Tensor]) -> None:
        """The same for tensors."""
        self.disk.save(target, tensors)
        self._sync(target, target.parent)

    def append(self, target: Path, data: bytes) -> None:
        """Write at the end of a file."""
        self.disk.append(target, data)
        self._sync(target)

    @contextmanager
    def new_folder(self, target: Path) -> Iterator[Path]:
        """A folder to write new files to. It has its place once this context ends: all of it, or nothing."""
        self.make_folder(target.parent)
        with folder_written_aside(target, self.disk) as aside:
            yield aside
        self._sync(target.parent)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder."""
        self.disk.remove(path)

    def clear(self, folder: Path) -> None:
        """Remove what a process that was killed had not finished writing in a folder where nobody else is at work."""
        for path in folder.glob(_ASIDE.format("*", "*")):
            self.disk.remove(path)

    def _sync(self, *paths: Path) -> None:
        for path in paths if self.durability == "power" else ():
            self.disk.sync(path)


@contextmanager
def written_aside(target: Path, disk: Disk = Disk()) -> Iterator[Path]:  # noqa: B008  # it has no state
    """A path beside ``target`` to write to. It takes the target's place once this context ends, unless by an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_aside(Path(folder, "note.txt")) as aside:
    ...         _ = aside.write_text("all of it")
    ...     os.listdir(folder), Path(folder, "note.txt").read_text()
    (['note.txt'], 'all of it')
    """
    aside = _beside(target)
    try:
        yield aside
        disk.rename(aside, target)
    except BaseException:
        disk.remove(aside)
        raise


@contextmanager
def folder_written_aside(target: Path, disk: Disk = Disk()) -> Iterator[Path]:  # noqa: B008  # it has no state
    """The same for a folder: an empty one beside ``target``, which it replaces.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with folder_written_aside(Path(folder, "notes")) as aside:
    ...         _ = Path(aside, "note.txt").write_text("all of it")
    ...     os.listdir(folder), os.listdir(Path(folder, "notes"))
    (['notes'], ['note.txt'])
    """
    aside = _beside(target)
    if aside.exists():  # of a process that was killed
        disk.remove(aside)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        disk.make_folder(aside)
        yield aside
        if target.exists():
            disk.remove(target)
        disk.rename(aside, target)
    except BaseException:
        disk.remove(aside)
        raise


def _beside(target: Path) -> Path:
    return target.with_name(_ASIDE.format(target.name, os.getpid()))


@contextmanager
def writing(what: object, remains: str = "") -> Iterator[None]:
    """Within this context an error of the disk is one line about ``what``; ``remains`` says what is safe all the same.

    >>> with writing("notes/note.txt"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    fedpace.core.errors.RunFolderError: notes/note.txt: cannot be written (No space left on device); free some space
    """
    try:
        yield
    except OSError as error:
        said = [f"{what}: cannot be written ({error.strerror or one_line(error)})", *filter(None, [remains])]
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise RunFolderError("; ".join([*said, "free some space"] if full else said)) from error


def write_text(target: Path, text: str) -> None:
    """Write a file, and the folders above it; an error of the disk is one line."""
    with writing(target):
        Writer().make_folder(target.parent)
        Writer().write(target, text.encode())


def digest(*parts: bytes | str | memoryview) -> str:
    """32 hexadecimal digits that differ wherever a part differs.

    >>> digest("ab", b"c") == digest("ab", "c"), digest("ab", "c") == digest("a", "bc")
    (True, False)
    """
    found = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()
