"""What programs that other ones began hold and use, by the name of the program."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def memory(root: int) -> dict[str, float]:
    """MB that each program holds which a process has begun, or one that it has begun.

    Without what it has from files, such as libraries: processes share that.
    """
    return _sums(root, _held)


def seconds(root: int) -> dict[str, float]:
    """Seconds of computing of the same programs, and of those that they have begun and outlived."""
    return _sums(root, _seconds)


def _held(process: Path) -> float:
    resident, shared = map(int, (process / "statm").read_text().split()[1:3])
    return (resident - shared) * PAGE / 1e6


def _seconds(process: Path) -> float:
    after_name = (process / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:15])) / TICK


def _sums(root: int, measured: Callable[[Path], float]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    waiting = [root]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            for thread in (process / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
            words = (process / "cmdline").read_bytes().split(b"\0")
            name = next(Path(word.decode()).name for word in words[1:] if word and not word.startswith(b"-"))
            found[name] += measured(process)
        except (OSError, StopIteration):
            continue  # it has ended
    return dict(found)
