"""What a process does first that works for another one."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
from threading import Thread

import torch

from fedpace.core import keep_freed

LOOK = 0.5  # seconds between two looks whether the parent is still there


def begin_child() -> None:
    """Make this process a mere helper of its parent: one thread, deaf to the terminal, gone when the parent is gone.

    It keeps what memory it once got for as long as it lives.
    """
    torch.set_num_threads(1)  # first of all: a forked process hangs if it uses the thread pool that its parent started
    keep_freed()
    for name in {"SIGINT", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent's business: it ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """However the parent ends: killed by force, it can tell its children nothing."""
    parent = mp.parent_process()
    while parent is not None and os.getppid() == parent.pid:
        time.sleep(LOOK)
    os._exit(1)
