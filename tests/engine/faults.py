"""A disk that fails at one operation of a run, in some way, so that a test can go through all of them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from fedpace.core import Disk

OPERATIONS = ("make_folder", "write", "save", "append", "sync", "rename", "remove")
FAULTS = ("killed", "killed in the midst", "full", "lost")


class Killed(BaseException):
    """Stands for the end of the process: nothing that it would have done later is done."""


@contextmanager
def counted() -> Iterator[list[str]]:
    """The names of all operations within this context, in their order."""
    done: list[str] = []

    def operate(name, disk, *arguments):
        done.append(name)
        _REAL[name](disk, *arguments)

    with _instead(operate):
        yield done


@contextmanager
def failing(number: int, fault: str, later: int = 3) -> Iterator[None]:
    """Within this context the operation of this ``number`` fails.

    ``lost``: the disk does not get all of it, though it says so, and the process is killed some operations ``later``;
    so does a failure of the power.
    """
    done: list[str] = []

    def operate(name, disk, *arguments):
        done.append(name)
        now = len(done) - 1
        if now < number or (fault == "full" and now > number):
            _REAL[name](disk, *arguments)
        elif fault == "killed" or now > number + (later if fault == "lost" else 0):
            raise Killed
        elif fault == "lost" and now > number:
            _REAL[name](disk, *arguments)
        else:
            _half(name, disk, *arguments, whole=fault == "lost")
            if fault == "full":
                raise OSError(errno.ENOSPC, "No space left on device")
            if fault != "lost":
                raise Killed

    with _instead(operate):
        yield


_REAL = {name: getattr(Disk, name) for name in OPERATIONS} | {"sync": lambda disk, path: None}  # it takes long


def _half(name, disk, path, *arguments, whole):
    """Half of what is written reaches the disk, half of a folder is removed; of the rest nothing unless ``whole``."""
    if name in ("write", "append"):
        (data,) = arguments
        _REAL[name](disk, path, data[: len(data) // 2])
    elif name == "save":
        _REAL[name](disk, path, *arguments)
        os.truncate(path, path.stat().st_size // 2)
    elif name == "remove" and path.is_dir():
        min(path.iterdir()).unlink()
    elif whole:
        _REAL[name](disk, path, *arguments)


def _instead(operate):
    def method(name):
        return lambda disk, *arguments: operate(name, disk, *arguments)

    return patch.multiple(Disk, **{name: method(name) for name in OPERATIONS})
