"""Files that are whole or not there at all."""

from __future__ import annotations

import os
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
    aside = target.with_name(f".{target.name}.writing-{os.getpid()}")
    try:
        yield aside
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
