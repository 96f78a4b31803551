"""Everything in this process, one turn after another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from fedpace.core import Buffers, Device, Layout, Update, devices
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, executors
from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
from fedpace.tasks import Task


@executors.register("serial")
class Serial(Executor):
    """One turn after another in this process: for debugging, for many runs side by side, and for one GPU."""

    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Build the one worker."""
        return SerialExecution(Worker(copy.deepcopy(module), federation, layout, task, devices.choose(device)))


class SerialExecution(Execution):
    """One worker in this process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        here = worker.model.device
        # What clients send is aggregated where it lies, except on mps: the server needs double precision.
        self.device = here if here.type == "cuda" else devices.HOST

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        """One after another."""
        for turn in turns:
            with devices.forked_rng(self._worker.model.device):  # the user's own random numbers go on undisturbed
                update = self._worker.answer(turn, vector, buffers, extras or {})
            yield self.handed_over(update)

    def handed_over(self, update: Update) -> Update:
        """A worker's answer as the server wants it, where it wants it."""
        update = replace(update, encoded=None)
        return update if self._worker.model.device == self.device else update.to(self.device)

    def close(self) -> None:
        """Nothing is left behind."""
