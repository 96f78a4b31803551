"""What an executor is: it runs turns somewhere and yields their answers in the turns' order."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedpace.core import Buffers, Device, Layout, Named, Registry, Update, devices
from fedpace.data import Federation
from fedpace.engine.worker import CLASSIFICATION, Turn
from fedpace.methods import Method
from fedpace.server import Collected, Secure, Weighing
from fedpace.tasks import Task


class Execution(ABC):
    """Workers that are up. Answers come in the order of the turns, whoever finishes first.

    An answer's tensors are overwritten when the next answer is asked for. Where updates are ``secure``, nobody sees
    one: what clients train is asked for by ``sums``. Answers lie on the ``device``, where the server aggregates them.
    """

    secure: Secure | None = None
    device: torch.device = devices.HOST

    @property
    def notes(self) -> Sequence[str]:
        """Lines for the user on how turns are done. More of them may come while they are."""
        return ()

    def prepare(self, method: Method) -> None:  # noqa: B027  # most execute whatever comes
        """Hear of a run's method before its first round."""

    @abstractmethod
    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        """Do all turns from the same vector and buffers, with the same extras. Consume the iterator to its end."""

    def sums(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor], weighing: Weighing
    ) -> Collected:
        """Do one turn per client, and sum what they answer before anybody sees it."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Stop the workers."""

    def __enter__(self) -> Execution:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Executor(Named, ABC):
    """How turns are executed: parameters only; ``start`` brings workers up."""

    on_this_machine: ClassVar[bool] = True  # where workers compute, so that its devices are theirs

    def on_one_core(self) -> Executor:
        """The same for a run that goes beside others: one core is its own."""
        return self

    @abstractmethod
    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Bring up workers that hold this model and this data; a ``layout`` says which parameters are personal."""


executors: Registry[Executor] = Registry("executor", Executor)


def can_fork() -> bool:
    """Whether processes are forked, which shares data without copying. Elsewhere fork is missing or unsafe (macOS)."""
    return sys.platform == "linux"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
