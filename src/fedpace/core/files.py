"""Files and folders that are whole or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
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
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_written_aside(target: Path) -> Iterator[Path]:
    """The same for a folder: an empty one beside ``target``, which it replaces.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with folder_written_aside(Path(folder, "notes")) as aside:
    ...         _ = Path(aside, "note.txt").write_text("all of it")
    ...     os.listdir(folder), os.listdir(Path(folder, "notes"))
    (['notes'], ['note.txt'])
    """
    aside = _beside(target)
    try:
        shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
        aside.mkdir(parents=True)
        yield aside
        if target.exists():
            shutil.rmtree(target)
        os.replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.writing-{os.getpid()}")
