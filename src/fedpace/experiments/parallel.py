"""Long works side by side, each in a process of its own."""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from fedpace.core import FedpaceError
from fedpace.engine.executors import begin_child, can_fork

POLL = 0.2  # seconds between two looks at what is running
log = logging.getLogger("fedpace")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Work:
    """Something that takes long. It leaves its result in files, and its errors begin with its title."""

    title: str
    do: Callable[[], object]


def forks(workers: int) -> bool:
    """Whether works get processes of their own; if so, each should be content with one core."""
    return workers > 1 and can_fork()


def side_by_side(works: Mapping[Key, Work], workers: int) -> Iterator[list[Key]]:
    """Do all works, ``workers`` at a time; yields now and then the keys of those that may have come further."""
    if not forks(workers):
        for key, work in works.items():
            with named(work.title):
                work.do()
            yield [key]
        return
    waiting = list(works.items())[::-1]
    running: dict[Key, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                key, work = waiting.pop()
                running[key] = _Running(work)
            time.sleep(POLL)
            yield list(running)
            for key in [key for key, child in running.items() if child.finished()]:
                del running[key]
                yield [key]
    finally:
        for child in running.values():
            child.stop()


@contextmanager
def named(title: str) -> Iterator[None]:
    """An error within begins with the title and keeps its kind."""
    try:
        yield
    except FedpaceError as error:
        raise type(error)(f"{title}: {error}") from None


class _Running:
    """A work in a process of its own. Forked, so that neither data nor a user's model is pickled."""

    def __init__(self, work: Work) -> None:
        context: Any = mp.get_context("fork")
        self._title = work.title
        self._errors, theirs = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_child, args=(work, theirs))
        self._process.start()
        theirs.close()

    def finished(self) -> bool:
        """Whether the work is done; raises what went wrong in it."""
        self._tell_if_stopped()
        if self._process.is_alive():
            return False
        self._process.join()
        if self._process.exitcode:
            with suppress(EOFError):
                raise FedpaceError(f"{self._title}: {self._errors.recv()}")
            raise FedpaceError(f"{self._title}: its process ended with exit code {self._process.exitcode}")
        return True

    def _tell_if_stopped(self) -> None:
        pid = self._process.pid
        with suppress(ChildProcessError):  # it has ended
            if pid is not None and os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None:
                log.warning("%s: its process was stopped; it goes on after: kill -CONT %d", self._title, pid)

    def stop(self) -> None:
        """End the work by force, because a stopped process hears nothing else; it can be resumed."""
        self._process.kill()
        self._process.join()


def _child(work: Work, errors: Any) -> None:
    begin_child()
    logging.getLogger("fedpace").setLevel(logging.ERROR)  # warnings are in run.json; several runs would mix them up
    try:
        work.do()
    except FedpaceError as error:
        errors.send(str(error))
        raise SystemExit(2) from None
