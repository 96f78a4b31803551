"""What a task is: which targets there are, what a step makes smaller, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from fedpace.core import Metric, Named, Registry

Sums = dict[str, float]
"""What batches, shards and clients add up before metrics are made of it; ``count`` is always there."""


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
