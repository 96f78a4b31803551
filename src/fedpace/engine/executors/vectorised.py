"""Many clients as one computation: for small models, where each client costs more Python than arithmetic."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from pydantic import Field
from torch import Tensor, nn

from fedpace.core import Buffers, Device, Layout, Update, devices, one_line
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, executors
from fedpace.engine.executors._trial import Trial
from fedpace.engine.executors.serial import SerialExecution
from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
from fedpace.methods import Method
from fedpace.tasks import Task

ROWS = 8  # vectors of the model's size that a client needs: parameters, gradients, an optimizer's memory, states
MEGABYTE = 2**20
MORE = "turns of '{}' are more than plain steps in float32"


@executors.register("vectorised")
class Vectorised(Executor):
    """The clients of a round train in groups, each as one computation (``torch.func.vmap``), in this process.

    Worth it where models and clients are small, so that Python takes longer than arithmetic: linear models and small
    networks on some dozen examples. Clients see the same batches as with ``serial``; results agree with it up to
    rounding, and not to the bit. A method whose turns are more than plain steps is done one client after another, with
    a warning. A model that cannot be one computation is refused before the first round.

    Parameters: ``memory``, about how many megabytes a group of clients may take.
    """

    memory: float = Field(512, gt=0, allow_inf_nan=False)

    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Build the one worker."""
        worker = Worker(copy.deepcopy(module), federation, layout, task, devices.choose(device))
        return _VectorisedExecution(worker, federation, task, self.memory * MEGABYTE)


class _VectorisedExecution(Execution):
    """One worker in this process. Once it is prepared, it does turns with the same work together."""

    def __init__(self, worker: Worker, federation: Federation, task: Task, memory: float) -> None:
        self._worker, self._one_by_one = worker, SerialExecution(worker)
        self._federation, self._task, self._memory = federation, task, memory
        self._trial: Trial | None = None
        self.device = self._one_by_one.device
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """What was not done together."""
        return self._notes

    def prepare(self, method: Method) -> None:
        """Try the model; a method whose turns cannot be one computation needs no trial."""
        if method.stackable:
            self._trial = Trial.of(self._worker.model, self._federation, self._task)
        else:
            self._note(f"clients train one after another, because {MORE.format(method.registered_name())}")

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        for _, same in groupby(turns, key=lambda turn: turn.work):
            alike = list(same)
            size = self._group_size(alike)
            for start in range(0, len(alike), size):
                group = alike[start : start + size]
                run = self._one_by_one.run if len(group) == 1 else self._together
                yield from run(group, vector, buffers, extras)

    def _group_size(self, turns: Sequence[Turn]) -> int:
        """How many of these turns are done together: as many as the memory holds, or one by one."""
        work = turns[0].work
        if self._trial is None or not work.stackable or any(turn.extras for turn in turns):
            return 1
        each = ROWS * self._worker.model.vector.nbytes + work.held * self._trial.bytes_per_example
        return max(int(self._memory / each), 1)

    def _together(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        done = 0
        try:
            for update in self._worker.answers(turns, vector, buffers, extras or {}):
                yield self._one_by_one.handed_over(update)
                done += 1
        except Exception as error:  # one client's mistake is that of all: alone, each has its own
            self._note(f"some clients were trained one after another ({type(error).__name__}: {one_line(error)})")
            yield from self._one_by_one.run(turns[done:], vector, buffers, extras)

    def _note(self, message: str) -> None:
        line = f"executor 'vectorised': {message}"
        if line not in self._notes:
            self._notes.append(line)

    def close(self) -> None:
        pass
