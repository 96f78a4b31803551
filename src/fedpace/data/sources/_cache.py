"""What was decoded, kept on disk so that it is decoded once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from logging import getLogger
from pathlib import Path

import numpy as np

from fedpace.core import written_aside
from fedpace.data.examples import Array


def cache_folder() -> Path:
    """``$FEDPACE_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("FEDPACE_CACHE") or Path.home() / ".cache" / "fedpace")


def cached(files: Sequence[Path], variant: int | str | None, decode: Callable[[], Array]) -> Array:
    """What ``decode()`` returns for these files, memory-mapped; decoded again if a file changed.

    ``variant`` tells arrays of the same files apart: the size of images, or a name.
    """
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = blake2b(repr((states, variant)).encode(), digest_size=16).hexdigest()
    path = cache_folder() / "decoded" / f"{key}.npy"
    try:
        return _mapped(path)
    except (OSError, ValueError, EOFError):
        pass  # absent or damaged: decode
    array = decode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path) as aside, aside.open("wb") as file:
            np.save(file, array)
        return _mapped(path)
    except OSError as error:
        getLogger("fedpace").warning("decoded images stay in memory: cannot write %s (%s)", path, error.strerror)
        return array


def _mapped(path: Path) -> Array:
    """A plain array over the mapped file: numpy's memmap class is slower to index."""
    return np.asarray(np.load(path, mmap_mode="r"))
