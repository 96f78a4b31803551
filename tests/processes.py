"""Real processes: who lives, whose children they are, and waiting for what they do."""

import os
import signal
import time
from pathlib import Path

import pytest

has_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for processes in")


def alive(pid):
    return _stat(pid)[:1] not in ([], ["Z"])


def children(pid):
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if _stat(number)[1:2] == [str(pid)]]


def _stat(pid):
    """State, parent, …; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def until(condition, seconds=20):
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def hears_signals():
    """For ``preexec_fn``: what is started in the background ignores Ctrl-C, under nohup also the end of a terminal."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def with_modules(folder):
    """The search path of a process that finds the modules in a folder, too."""
    return os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
