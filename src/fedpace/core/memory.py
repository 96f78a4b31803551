"""Memory that was freed: it goes back to the system, or serves again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LARGEST = 256 << 20
"""Bytes up to which a tensor's memory serves again. Larger ones are seldom made."""

_GLIBCS = 32 << 20  # what glibc comes to by itself as large tensors are freed
_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


def keep_freed() -> None:
    """Let this process use freed memory again: of new memory, the first touch of a page costs 2 to 4 microseconds.

    Left alone, glibc gives most of what a training step frees back to the system and asks for it again in the next
    step. Up to twice ``LARGEST`` of free memory stay with the process for it. Without glibc nothing changes.
    """
    _keep(LARGEST)


@contextmanager
def freed_kept() -> Iterator[None]:
    """The same within this context; at its end free memory goes back to the system."""
    keep_freed()
    try:
        yield
    finally:
        _keep(_GLIBCS)
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)


def _keep(largest: int) -> None:
    with suppress(AttributeError, OSError, TypeError):  # another libc knows no such thing, Windows no such library
        libc = ctypes.CDLL(None)
        libc.mallopt(_MAP, largest)
        libc.mallopt(_TRIM, 2 * largest)
