"""The executor that is found to be the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field
from torch import Tensor, nn

from fedpace.core import Buffers, ConfigError, Device, Layout, Update
from fedpace.data import Federation
from fedpace.engine.executors._executor import Execution, Executor, executors
from fedpace.engine.executors.processes import Processes
from fedpace.engine.executors.vectorised import MORE, Vectorised
from fedpace.engine.stopwatch import Stopwatch
from fedpace.engine.worker import CLASSIFICATION, Turn
from fedpace.methods import Method
from fedpace.tasks import Task

SHARE = 4  # one of so many clients of the first round is trained by processes, the others together


@executors.register("auto")
class Auto(Executor):
    """``processes`` or ``vectorised``, whichever is faster on the first clients that train.

    Some clients of the first round train in processes and the others together; from then on whoever took less time for
    a client does the work. Where a model or a method cannot be vectorised, processes do all of it. A note in the run's
    warnings says what was chosen and why.

    ``vectorised`` equals the others up to rounding only, and times differ from run to run. Hence, unlike any other
    executor, this one does not give the same bits twice.

    Parameters: ``workers``, those of ``processes``; with one, clients train in this process.
    """

    workers: int | None = Field(None, ge=1, le=1024)

    def on_one_core(self) -> Executor:
        """Against one worker."""
        return self.model_copy(update={"workers": 1})

    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Bring both up."""
        processes = Processes(workers=self.workers)
        usual = processes.on_one_core() if self.workers == 1 else processes
        rivals = {executor.registered_name(): executor for executor in (usual, Vectorised())}
        return _AutoExecution(
            {name: executor.start(module, federation, layout, task, device) for name, executor in rivals.items()}
        )


class _AutoExecution(Execution):
    """Two executions, the usual one first, of which one is closed as soon as the other is chosen."""

    def __init__(self, rivals: dict[str, Execution]) -> None:
        self._rivals = rivals
        self._usual, self._stacked = rivals.values()
        self.device = self._usual.device
        self._choice: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """What was chosen, and what that one has to say."""
        return [*self._choice, *(note for rival in self._rivals.values() for note in rival.notes)]

    def prepare(self, method: Method) -> None:
        """Take the usual one if the other cannot do it."""
        if not method.stackable:
            self._choose(self._usual, MORE.format(method.registered_name()))
            return
        try:
            self._stacked.prepare(method)
        except ConfigError as error:
            reason = str(error).removeprefix("executor 'vectorised': ").partition("; expected")[0]
            self._choose(self._usual, reason)

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        first, *others = self._rivals.values()
        compares = others and len(turns) > 1 and all(turn.on == "train" and turn.work.stackable for turn in turns)
        run = self._compared if compares else first.run
        here = all(rival.device == self.device for rival in self._rivals.values())
        for update in run(turns, vector, buffers, extras):
            yield update if here else update.to(self.device)

    def _compared(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None
    ) -> Iterator[Update]:
        """Do a part of the turns by each, and choose."""
        asked = vector, buffers, extras
        end = max(len(turns) // SHARE, 1)
        yield from self._usual.run(turns[: end // 2], *asked)  # the first turns of a process take longer
        usual, stacked = Stopwatch(), Stopwatch()
        yield from usual.over(self._usual.run(turns[end // 2 : end], *asked))
        yield from stacked.over(self._stacked.run(turns[end:], *asked))
        chosen, other = sorted((usual, stacked), key=lambda watch: watch.mean)
        reason = f"a client took {1000 * chosen.mean:.2g} ms and not {1000 * other.mean:.2g} ms"
        self._choose(self._stacked if chosen is stacked else self._usual, reason)

    def _choose(self, chosen: Execution, reason: str) -> None:
        for name, rival in list(self._rivals.items()):
            if rival is chosen:
                self._choice.append(f"executor 'auto': chose {name}, because {reason}")
            else:
                self._rivals.pop(name).close()

    def close(self) -> None:
        for rival in self._rivals.values():
            rival.close()
