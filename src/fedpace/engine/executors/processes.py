"""Persistent single-threaded worker processes that share parameters and update rows with the server."""

from __future__ import annotations

import copy
import logging
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

import torch
import torch.multiprocessing as mp
from pydantic import Field
from safetensors.torch import load, save
from torch import Tensor, nn

from fedpace.core import Buffers, ConfigError, Device, Layout, Tensors, Update, devices
from fedpace.data import Federation
from fedpace.engine.executors._child import begin_child
from fedpace.engine.executors._executor import Execution, Executor, can_fork, cores, executors
from fedpace.engine.executors.serial import Serial
from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
from fedpace.tasks import Task

ATTEMPTS = 3  # a turn that kills this many workers is given up as a failed client
LATE_ATTEMPTS = 2  # a turn that takes too long this many times, too
LOOK = 0.5  # seconds between two looks at workers that are silent
PATIENCE = 60.0  # seconds of silence after which a line is logged; doubled each time, because slow turns are no fault

log = logging.getLogger("fedpace")


@executors.register("processes")
class Processes(Executor):
    """One worker process per core, one thread each: the fast way on a CPU. Or one per GPU.

    Parameters, buffers and update rows lie in shared memory; data is inherited (memory-mapped or copy-on-write). Only
    small messages are pickled, and what few methods send along or keep with a client. A worker that dies is replaced
    and its turn done again, with bitwise the same result. So is one that works on a turn for more than
    ``turn_timeout`` seconds, because it hangs or was stopped; the second time, the client is dropped.

    On one GPU there is nothing to divide, so unless ``workers`` or ``turn_timeout`` say otherwise, clients train in
    this process. Of several, each worker takes one; workers are spawned then, with a copy of the data, because what is
    forked from a process that knows CUDA cannot use it. The server aggregates on the host.
    """

    workers: int | None = Field(None, ge=1, le=1024)  # a file may ask for any number
    turn_timeout: float | None = Field(None, gt=0, le=1e9)

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


@dataclass
class _Row:
    """Shared memory for one answer (or for the server's vector): parameters and buffers."""

    vector: Tensor
    buffers: Buffers

    @classmethod
    def like(cls, worker: Worker) -> _Row:
        model, buffers = worker.model, worker.model.buffers
        vector = model.vector.new_empty(model.layout.shared.size)
        return cls(_shared(vector), Buffers(_shared(buffers.floats), _shared(buffers.integers)))


def _shared(like: Tensor) -> Tensor:
    return torch.zeros_like(like).share_memory_()  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class _Answer:
    """An update as a small message: vector and buffers stay behind in a row."""

    update: Update
    has_vector: bool = False
    has_buffers: bool = False
    extras: bytes = b""
    state: bytes | None = None

    @classmethod
    def split(cls, update: Update, row: _Row) -> _Answer:
        """Put an update's tensors into its row."""
        vector, buffers = update.vector, update.buffers
        if vector is not None:
            if vector.shape != row.vector.shape:
                return cls(Update(update.client, failure=f"wrong shape: {tuple(vector.shape)}"))
            row.vector.copy_(vector)
        if buffers is not None:
            row.buffers.copy_(buffers)
        state = None if update.state is None else _packed(update.state)
        small = replace(update, vector=None, buffers=None, extras={}, state=None, encoded=None)
        return cls(small, vector is not None, buffers is not None, _packed(update.extras), state)

    def joined(self, row: _Row) -> Update:
        """The update with its tensors."""
        return replace(
            self.update,
            vector=row.vector if self.has_vector else None,
            buffers=row.buffers if self.has_buffers else None,
            extras=_unpacked(self.extras),
            state=None if self.state is None else _unpacked(self.state),
        )


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as bytes: through a pipe they would leave a file descriptor behind for each."""
    return save({name: devices.to_host(tensor).contiguous() for name, tensor in tensors.items()}) if tensors else b""


def _unpacked(data: bytes) -> Tensors:
    return load(data) if data else {}


@dataclass
class _Process:
    """A worker process, the pipe to it, the device that is its own, and what it is doing."""

    process: BaseProcess
    pipe: Connection
    place: torch.device
    job: tuple[int, int] | None = None  # number of the turn, number of the row its answer goes to
    since: float = 0.0  # when it was given that
    patience: float = PATIENCE
    late: bool = False  # ended because it took too long

    def end(self) -> None:
        """By force, because a stopped process hears nothing else."""
        self.process.kill()


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
            self._server = _Row.like(self._worker)
            # Twice as many rows as workers: nobody waits while an earlier, slower client is still at work.
            self._rows = [_Row.like(self._worker) for _ in range(2 * workers)]
        except RuntimeError as error:
            raise ConfigError(f"executor: no shared memory for {workers} workers ({error}); try serial") from None
        self._processes = [self._spawn(places[i % len(places)]) for i in range(workers)]

    def _spawn(self, place: torch.device) -> _Process:
        ours, theirs = self._context.Pipe()
        if self._turn_timeout is not None:
            _limit(ours, self._turn_timeout)
        arguments = (theirs, self._worker, place, self._server, self._rows)
        process = self._context.Process(target=_serve, args=arguments, daemon=True, name="fedpace-worker")
        process.start()
        theirs.close()
        return _Process(process, ours, place)

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        self._server.vector.copy_(vector)
        self._server.buffers.copy_(buffers)
        self._extras = _packed(extras or {})
        waiting = list(reversed(range(len(turns))))  # turns not yet handed out, next one last
        free = list(range(len(self._rows)))
        answers: dict[int, tuple[int, _Answer]] = {}
        attempts = [0] * len(turns)
        for awaited in range(len(turns)):
            while awaited not in answers:
                for worker in self._processes:
                    if worker.job is None and waiting and free:
                        self._hand_out(worker, waiting.pop(), free.pop(), turns, attempts)
                for worker in self._ready(turns):
                    if worker.job is None:  # it died idle
                        self._replace(worker)
                        continue
                    number, row = worker.job
                    received = self._receive(worker, turns[number].client, attempts[number])
                    if received is None:
                        self._hand_out(worker, number, row, turns, attempts)
                    else:
                        answers[number] = (row, received)
                        worker.job = None
            row, answer = answers.pop(awaited)
            yield answer.joined(self._rows[row])
            free.append(row)

    def _hand_out(self, worker: _Process, number: int, row: int, turns: Sequence[Turn], attempts: list[int]) -> None:
        attempts[number] += 1
        worker.job, worker.since = (number, row), monotonic()
        turn = turns[number]
        try:
            worker.pipe.send(
                (row, replace(turn, state={}, extras={}), _packed(turn.state), self._extras, _packed(turn.extras))
            )
        except OSError:  # it died or was stopped; the next look at it finds the closed pipe and replaces it
            worker.end()
            attempts[number] -= 1

    def _ready(self, turns: Sequence[Turn]) -> list[_Process]:
        """Workers that answered or died. One that is at work on a turn for too long dies now."""
        ready = wait([worker.pipe for worker in self._processes], timeout=LOOK)
        for worker in self._processes:
            if worker.job is not None and worker.pipe not in ready:
                self._watch(worker, turns[worker.job[0]].client)
        return [worker for worker in self._processes if worker.pipe in ready]

    def _watch(self, worker: _Process, client: int) -> None:
        silent = monotonic() - worker.since
        if self._turn_timeout is not None and silent > self._turn_timeout:
            worker.late = True
            worker.end()
        elif silent > worker.patience:
            worker.patience *= 2
            whose = f"client {client}" if client >= 0 else "the test set"
            said = "%s: no answer from its worker (process %d) for %.0f s; executor.turn_timeout limits such a wait"
            log.warning(said, whose, worker.process.pid, silent)

    def _receive(self, worker: _Process, client: int, attempts: int) -> _Answer | None:
        """The answer of a worker that is ready; ``None`` if it died instead, in which case it is replaced."""
        try:
            answer: _Answer = worker.pipe.recv()
            return answer
        except (EOFError, OSError):
            late = worker.late
            self._replace(worker)
            if attempts < (LATE_ATTEMPTS if late else ATTEMPTS):
                return None
            died = f"its worker process died {attempts} times (out of memory?)"
            return _Answer(Update(client, failure=f"took longer than {self._turn_timeout:g} s" if late else died))

    def _replace(self, worker: _Process) -> None:
        worker.pipe.close()
        worker.end()
        worker.process.join(timeout=1)
        fresh = self._spawn(worker.place)
        worker.process, worker.pipe, worker.late = fresh.process, fresh.pipe, False

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


def _serve(pipe: Connection, worker: Worker, place: torch.device, server: _Row, rows: list[_Row]) -> None:
    """Main loop of a worker process."""
    begin_child()
    worker.move(place)
    with suppress(EOFError, OSError):  # the server is gone
        while True:
            row, turn, state, extras, own = pipe.recv()
            turn = replace(turn, state=_unpacked(state), extras=_unpacked(own))
            answer = worker.answer(turn, server.vector, server.buffers, _unpacked(extras))
            pipe.send(_Answer.split(answer, rows[row]))
