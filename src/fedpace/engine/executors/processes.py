"""Persistent single-threaded worker processes that share parameters and update rows with the server."""

from __future__ import annotations

import copy
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from time import monotonic
from typing import Any

import torch
import torch.multiprocessing as mp
from pydantic import Field
from torch import Tensor, nn

from fedpace.core import Buffers, ConfigError, Device, Layout, Update, devices
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, can_fork, cores, executors
from fedpace.engine.executors._messages import Answer, Answers, Order, Orders, packed
from fedpace.engine.executors._rows import Rows, rows_for
from fedpace.engine.executors._serving import serve
from fedpace.engine.executors.serial import Serial
from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
from fedpace.tasks import Task

ATTEMPTS = 3  # a turn that kills this many workers is given up as a failed client
LATE_ATTEMPTS = 2  # a turn that takes too long this many times, too
LOOK = 0.5  # seconds between two looks at workers that are silent
PATIENCE = 60.0  # seconds of silence after which a line is logged; doubled each time, because slow turns are no fault
AHEAD = 0.04  # seconds of work that a worker has before it, so that it never waits for a server that aggregates
LIGHT = 1 << 15  # bytes that a pipe takes from the server while its worker is busy

log = logging.getLogger("fedpace")


@executors.register("processes")
class Processes(Executor):
    """One worker process per core, one thread each: the fast way on a CPU. Or one per GPU.

    Parameters, buffers and update rows lie in shared memory; data is inherited (memory-mapped or copy-on-write). Only
    small messages are pickled, and what few methods send along or keep with a client. Rows are two per worker and two
    more, or as many as 32 MB hold of a small model, at most 32 per worker; it does its turns in lots of some
    milliseconds, and the last ones one by one, so that all workers end together. A worker that dies is replaced
    and its turn done again, with bitwise the same result. So is one that works on a turn for more than
    ``turn_timeout`` seconds, because it hangs or was stopped; the second time, the client is dropped.

    On one GPU there is nothing to divide, so unless ``workers`` or ``turn_timeout`` say otherwise, clients train in
    this process. Of several, each worker takes one; workers are spawned then, with a copy of the data, because what is
    forked from a process that knows CUDA cannot use it. The server aggregates on the host.
    """

    workers: int | None = Field(None, ge=1, le=1024)  # a file may ask for any number
    turn_timeout: float | None = Field(None, gt=0, le=1e9)

    def on_one_core(self) -> Executor:
        """Clients train in the run's own process, or in one more that can be ended after a time limit."""
        return Serial() if self.turn_timeout is None else self.model_copy(update={"workers": 1})

    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Bring up the workers."""
        places = devices.choose_all(device)
        workers = self.workers or (cores() if places == [devices.HOST] else len(places))
        if workers == 1 and places != [devices.HOST] and self.turn_timeout is None:
            return Serial().start(module, federation, layout, task, device)
        worker = Worker(copy.deepcopy(module), federation, layout, task)
        return _ProcessExecution(worker, workers, places, self.turn_timeout)


@dataclass(frozen=True)
class _Job:
    """A turn by its number, and the number of the row that its answer goes to."""

    turn: int
    row: int


@dataclass
class _Process:
    """A worker process, the pipe to it, the device that is its own, and what it has to do."""

    process: BaseProcess
    pipe: Connection
    place: torch.device
    number: int
    jobs: deque[_Job] = field(default_factory=deque)  # not answered yet, in their order
    answered: int = 0  # turns since it was started
    seen: int = 0  # turns that it had begun when it was looked at
    since: float = 0.0  # when it last was seen to come further
    patience: float = PATIENCE
    late: bool = False  # ended because it took too long
    knows_extras: bool = False  # those of this course

    def end(self) -> None:
        """By force, because a stopped process hears nothing else."""
        self.process.kill()

    def at_work_on(self, begun: int) -> _Job | None:
        """What it is doing, where it has begun so many turns since it was started."""
        return self.jobs[begun - self.answered - 1] if self.answered < begun <= self.answered + len(self.jobs) else None


class _Course:
    """The turns that are done from one vector: which of them wait, how many workers each has killed, the answers."""

    def __init__(self, turns: Sequence[Turn], extras: bytes, rows: int) -> None:
        self.turns, self.extras = turns, extras
        self.waiting = deque(range(len(turns)))
        self.free = list(range(rows))
        self.killed = [0] * len(turns)
        self.answers: dict[int, tuple[int, Answer]] = {}
        self.light = True  # whether a message fits into a pipe that nobody reads
        self._seconds: float | None = None  # of a turn

    def learn(self, seconds: float, turns: int) -> None:
        """Turns took so long."""
        latest = seconds / turns
        self._seconds = latest if self._seconds is None else 0.8 * self._seconds + 0.2 * latest

    def lot(self, workers: int, rows: int) -> int:
        """How many turns a worker should have before it: two, or more small ones, but at the end only one."""
        wanted = 2 if not self._seconds else max(ceil(AHEAD / self._seconds), 2)
        return min(wanted, max(len(self.waiting) // workers, 1), max((rows - 2) // workers, 1))

    def heavy(self) -> bool:
        """Whether the next turn may only be sent to a worker that is listening: both would wait for ever otherwise."""
        turn = self.turns[self.waiting[0]]
        return not self.light or bool(turn.state or turn.extras)

    def give_back(self, jobs: Sequence[_Job]) -> None:
        """These are to be done by somebody else."""
        self.waiting.extendleft(job.turn for job in reversed(jobs))
        self.free.extend(job.row for job in jobs)


class _ProcessExecution(Execution):
    def __init__(
        self,
        worker: Worker,
        workers: int,
        places: Sequence[torch.device] = (devices.HOST,),
        turn_timeout: float | None = None,
    ) -> None:
        # Fork shares the data without copying and starts in milliseconds; elsewhere workers are spawned.
        forks = can_fork() and all(place == devices.HOST for place in places)
        self._context: Any = mp.get_context("fork" if forks else "spawn")
        self._turn_timeout = turn_timeout
        self._worker = worker  # on the host: each process takes it to a place of its own
        try:
            self._server, self._rows = Rows.like(worker, 1), Rows.like(worker, rows_for(worker, workers))
            self._begun = torch.zeros(workers, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ConfigError(f"executor: no shared memory for {workers} workers ({error}); try serial") from None
        self._processes = [self._spawn(number, places[number % len(places)]) for number in range(workers)]

    def _spawn(self, number: int, place: torch.device) -> _Process:
        ours, theirs = self._context.Pipe()
        if self._turn_timeout is not None:
            _limit(ours, self._turn_timeout)
        self._begun[number] = 0
        arguments = (theirs, self._worker, place, self._server, self._rows, self._begun, number)
        process = self._context.Process(target=serve, args=arguments, daemon=True, name="fedpace-worker")
        process.start()
        theirs.close()
        return _Process(process, ours, place, number)

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        server = self._server[0]
        server.vector.copy_(vector)
        server.buffers.copy_(buffers)
        course = _Course(turns, packed(extras or {}), len(self._rows))
        for worker in self._processes:
            worker.knows_extras = False
        for awaited in range(len(turns)):
            while awaited not in course.answers:
                self._hand_out(course)
                for worker in self._ready(course):
                    self._receive(worker, course)
            row, answer = course.answers.pop(awaited)
            yield answer.joined(self._rows[row])
            course.free.append(row)

    def _hand_out(self, course: _Course) -> None:
        """Give turns to the workers that have least to do."""
        orders: dict[int, list[Order]] = {}
        lot = course.lot(len(self._processes), len(self._rows))
        while course.waiting and course.free:
            heavy = course.heavy()
            listening = [each for each in self._processes if not (heavy and self._busy(each, orders))]
            worker = min(listening, key=lambda each: len(each.jobs), default=None)
            if worker is None or len(worker.jobs) >= lot:
                break
            job = _Job(course.waiting.popleft(), course.free.pop())
            worker.jobs.append(job)
            orders.setdefault(worker.number, []).append(Order.of(course.turns[job.turn], job.row))
        for number, turns in orders.items():
            self._send(self._processes[number], turns, course)

    @staticmethod
    def _busy(worker: _Process, orders: Mapping[int, Sequence[Order]]) -> bool:
        """Whether it has more to do than what it is about to be sent."""
        return len(worker.jobs) > len(orders.get(worker.number, ()))

    def _send(self, worker: _Process, turns: Sequence[Order], course: _Course) -> None:
        if len(worker.jobs) == len(turns):  # it was waiting for this
            worker.since = monotonic()
        extras = None if worker.knows_extras else course.extras
        message = ForkingPickler.dumps(Orders(turns, extras))
        course.light = len(message) - len(extras or b"") < LIGHT
        try:
            worker.pipe.send_bytes(message)
            worker.knows_extras = True
        except OSError:  # it died or was stopped; the next look at it finds the closed pipe and replaces it
            worker.end()

    def _ready(self, course: _Course) -> list[_Process]:
        """Workers that answered or died. One that is at work on a turn for too long dies now."""
        ready = wait([worker.pipe for worker in self._processes], timeout=LOOK)
        for worker in self._processes:
            if worker.jobs and worker.pipe not in ready:
                self._watch(worker, course)
        return [worker for worker in self._processes if worker.pipe in ready]

    def _watch(self, worker: _Process, course: _Course) -> None:
        begun = int(self._begun[worker.number])
        if begun != worker.seen:
            worker.seen, worker.since = begun, monotonic()
        silent = monotonic() - worker.since
        if self._turn_timeout is not None and silent > self._turn_timeout:
            worker.late = True
            worker.end()
        elif silent > worker.patience:
            worker.patience *= 2
            client = course.turns[(worker.at_work_on(begun) or worker.jobs[0]).turn].client
            whose = f"client {client}" if client >= 0 else "the test set"
            said = "%s: no answer from its worker (process %d) for %.0f s; executor.turn_timeout limits such a wait"
            log.warning(said, whose, worker.process.pid, silent)

    def _receive(self, worker: _Process, course: _Course) -> None:
        """Take the answers of a worker that is ready; if it died instead, what it had to do is to be done again."""
        try:
            found: Answers = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker, course)
            return
        for answer in found.answers:
            job = worker.jobs.popleft()
            course.answers[job.turn] = (job.row, answer)
        worker.answered += len(found.answers)
        worker.since = monotonic()
        course.learn(found.seconds, len(found.answers))

    def _bury(self, worker: _Process, course: _Course) -> None:
        """Replace a dead worker. What it was at work on is given up if it has killed too many."""
        fatal, late = worker.at_work_on(int(self._begun[worker.number])), worker.late
        if fatal is not None:
            course.killed[fatal.turn] += 1
            times, client = course.killed[fatal.turn], course.turns[fatal.turn].client
            if times >= (LATE_ATTEMPTS if late else ATTEMPTS):
                died = f"its worker process died {times} times (out of memory?)"
                failure = f"took longer than {self._turn_timeout:g} s" if late else died
                course.answers[fatal.turn] = (fatal.row, Answer(Update(client, failure=failure)))
                worker.jobs.remove(fatal)
        course.give_back(worker.jobs)
        worker.pipe.close()
        worker.end()
        worker.process.join(timeout=1)
        self._processes[worker.number] = self._spawn(worker.number, worker.place)

    def close(self) -> None:
        for worker in self._processes:
            worker.pipe.close()
            worker.end()
        for worker in self._processes:
            worker.process.join()


def _limit(pipe: Connection, seconds: float) -> None:
    """Give up a message half-way, with an OSError, if the other end is stopped in the middle of it."""
    if os.name != "posix":
        return
    duration = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, duration)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, duration)
