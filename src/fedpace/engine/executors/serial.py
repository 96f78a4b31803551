"""Everything in this process, one task after another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedpace.core import Buffers, Layout, Update
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, executors
from fedpace.engine.worker import CLASSIFICATION, Task, Worker
from fedpace.tasks import Task as Problem


@executors.register("serial")
class Serial(Executor):
    """One task after another in this process: for debugging, and for many runs side by side."""

    def start(
        self, module: nn.Module, federation: Federation, layout: Layout | None = None, problem: Problem = CLASSIFICATION
    ) -> Execution:
        """Build the one worker."""
        return _SerialExecution(Worker(copy.deepcopy(module), federation, layout, problem))


class _SerialExecution(Execution):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def run(
        self, tasks: Sequence[Task], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        for task in tasks:
            with torch.random.fork_rng(devices=[]):  # the user's own random numbers go on undisturbed
                update = self._worker.answer(task, vector, buffers, extras or {})
            yield update

    def close(self) -> None:
        pass
