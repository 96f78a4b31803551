"""What a task is: which targets there are, what a step makes smaller, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan
from typing import ClassVar

from torch import Tensor

from fedpace.core import Named, Registry

Sums = dict[str, float]
"""What batches, shards and clients add up before metrics are made of it; ``count`` is always there."""


@dataclass(frozen=True)
class Metric:
    """A figure of a model. ``percent`` are shares, which tables show times 100; ``rises`` says that more is better.

    >>> ACCURACY.label, ACCURACY.text(0.5), Metric("MAE", rises=False).text(0.5)
    ('accuracy (%)', '50.00%', '0.500')
    """

    name: str
    rises: bool = True
    percent: bool = False

    @property
    def label(self) -> str:
        """The name with its unit, as tables and axes write it."""
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def title(self) -> str:
        """The name at the beginning of a line."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def unit(self) -> str:
        """The unit of differences, as tables write it."""
        return " (points)" if self.percent else ""

    def text(self, value: float) -> str:
        """A value, as a sentence writes it."""
        return f"{self.number(value)}%" if self.percent else self.number(value)

    def number(self, value: float, sign: str = "") -> str:
        """A value without its unit, as a column writes it; ``sign`` as in format strings."""
        return f"{value * 100:{sign}.2f}" if self.percent else f"{value:{sign}.3f}"

    def best(self, values: Iterable[float]) -> float:
        """The best of some values; NaN of none."""
        return max(values, default=nan) if self.rises else min(values, default=nan)


ACCURACY = Metric("accuracy", percent=True)
"""What classifiers are judged by."""


class Task(Named, ABC):
    """What clients learn. Parameters only; every loss and every metric of a run comes from here.

    A model gives ``outputs``, one row per example. Metrics are made of sums that can be added up over batches and
    clients, so that a figure does not depend on how examples were divided. The first metric is the headline: what
    tables, curves and tuning are about.
    """

    metrics: ClassVar[tuple[Metric, ...]]
    classes: ClassVar[bool] = False  # whether a target is one class per example
    padding: ClassVar[int] = 0  # what makes targets of different length equally long

    @property
    def headline(self) -> Metric:
        """The metric that a run is judged by."""
        return self.metrics[0]

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What a step makes smaller: a scalar, the mean over the batch."""

    @abstractmethod
    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """What metrics are made of: ``count``, the ``loss`` times the count, and more."""

    @abstractmethod
    def measured(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The metrics by name, of sums over many batches."""

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """What the model answers: a class, a number, some labels, a token."""

    @abstractmethod
    def check_targets(self, targets: Tensor, outputs: int) -> str | None:
        """Why these are no targets of this task, for a model with so many ``outputs``; nothing if they are."""

    def check_outputs(self, outputs: Tensor, targets: Tensor, expected: int) -> str | None:
        """Why a model's ``outputs`` do not fit the targets of a batch; nothing if they do."""
        wanted = (len(targets), expected)
        return None if tuple(outputs.shape) == wanted else f"expected outputs of shape {wanted}"


def added(one: Mapping[str, float], other: Mapping[str, float]) -> Sums:
    """Two sums as one.

    >>> added({"count": 1.0}, {"count": 2.0, "loss": 0.5})
    {'count': 3.0, 'loss': 0.5}
    """
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in dict.fromkeys((*one, *other))}


tasks: Registry[Task] = Registry("task", Task)


def metric_named(name: str) -> Metric:
    """The metric of this name that some task of ours has; of a user's own it is not known how it wants to be shown.

    >>> metric_named("accuracy").percent, metric_named("mine").percent
    (True, False)
    """
    known = (metric for task in tasks.names() for metric in tasks.get(task).metrics if metric.name == name)
    return next(known, Metric(name))
