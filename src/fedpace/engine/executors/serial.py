"""Everything in this process, one turn after another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedpace.core import Buffers, Layout, Update
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, executors
from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
from fedpace.tasks import Task


@executors.register("serial")
class Serial(Executor):
    """One turn after another in this process: for debugging, and for many runs side by side."""

    def start(
        self, module: nn.Module, federation: Federation, layout: Layout | None = None, task: Task = CLASSIFICATION
    ) -> Execution:
        """Build the one worker."""
        return _SerialExecution(Worker(copy.deepcopy(module), federation, layout, task))


class _SerialExecution(Execution):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        for turn in turns:
            with torch.random.fork_rng(devices=[]):  # the user's own random numbers go on undisturbed
                update = self._worker.answer(turn, vector, buffers, extras or {})
            yield update

    def close(self) -> None:
        pass
