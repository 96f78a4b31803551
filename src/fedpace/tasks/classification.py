"""One class per example."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn import functional as F

from fedpace.core import ACCURACY, Metric
from fedpace.tasks._task import Sums, Task, tasks


@tasks.register("classification")
class Classification(Task):
    """Cross-entropy of one class per example; accuracy is the headline.

    ``label_smoothing`` gives a share of each target to all classes, ``class_weights`` let some classes count more. Both
    change what is trained; the loss that is measured is the plain one.

    >>> Classification().measured({"count": 4.0, "loss": 2.0, "correct": 3.0})
    {'accuracy': 0.75, 'loss': 0.5}
    """

    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, Metric("loss", rises=False))
    classes: ClassVar[bool] = True

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    class_weights: tuple[float, ...] | None = None

    @field_validator("class_weights")
    @classmethod
    def _count_something(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is not None and not (min(weights) >= 0 and 0 < sum(weights) < float("inf")):
            raise ValueError(f"expected weights of at least 0, not all of them 0, found {list(weights)}")
        return weights

    @cached_property
    def _weights(self) -> Tensor | None:
        return None if self.class_weights is None else torch.tensor(self.class_weights)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        weights = None if self._weights is None else self._weights.to(outputs)
        return F.cross_entropy(outputs, targets, weight=weights, label_smoothing=self.label_smoothing)

    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """Correct answers and summed cross-entropy."""
        return {
            "count": float(len(targets)),
            "loss": float(F.cross_entropy(outputs, targets, reduction="sum")),
            "correct": float((self.predict(outputs) == targets).sum()),
        }

    def measured(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Accuracy and loss."""
        return {"accuracy": sums["correct"] / sums["count"], "loss": sums["loss"] / sums["count"]}

    def predict(self, outputs: Tensor) -> Tensor:
        """The class with the highest score."""
        return outputs.argmax(1)

    def check_outputs(self, outputs: Tensor, targets: Tensor, expected: int) -> str | None:
        """A score for every class."""
        wrong = super().check_outputs(outputs, targets, expected)
        return wrong and f"{wrong}: its output size must match the data's {expected} classes"

    def check_targets(self, targets: Tensor, outputs: int) -> str | None:
        """Integers below the number of classes."""
        if targets.is_floating_point() or targets.dim() != 1:
            return f"expected one class per example, found {describe(targets)}; for numbers use task = 'regression'"
        if self.class_weights is not None and len(self.class_weights) != outputs:
            return f"class_weights: expected {outputs}, one per class, found {len(self.class_weights)}"
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < outputs:
            return f"expected classes from 0 to {outputs - 1}, found {int(targets.min())} to {int(targets.max())}"
        return None


def describe(targets: Tensor) -> str:
    """Kind and shape of targets, for messages."""
    kind = str(targets.dtype).removeprefix("torch.")
    return f"{kind} targets of shape {tuple(targets.shape[1:])}" if targets.dim() > 1 else f"{kind} targets"
