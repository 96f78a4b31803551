"""Numbers as targets."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from fedpace.core import Metric
from fedpace.tasks._task import Sums, Task, tasks
from fedpace.tasks.classification import describe


@tasks.register("regression")
class Regression(Task):
    """One or more numbers per example, by squared error or by Huber's; R² is the headline.

    ``delta`` is where Huber's loss turns from squares to absolute values. R² compares the squared error with that of
    the mean target, over all numbers that were measured together; where they are all the same it has no value.

    >>> squares = {"squares": 1.0, "absolute": 2.0, "targets": 6.0, "squared_targets": 14.0}
    >>> Regression().measured({"count": 3.0, "loss": 1.0, "numbers": 3.0, **squares})["R²"]
    0.5
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("R²"),
        Metric("MAE", rises=False),
        Metric("loss", rises=False),
    )

    error: Literal["squared", "huber"] = "squared"
    delta: float = Field(1.0, gt=0, allow_inf_nan=False)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error, or Huber's."""
        wanted = targets.to(outputs.dtype).view_as(outputs)
        if self.error == "huber":
            return F.huber_loss(outputs, wanted, delta=self.delta)
        return F.mse_loss(outputs, wanted)

    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """Errors and targets, as sums from which R² follows."""
        wanted = targets.double().view_as(outputs)  # sums of squares lose digits
        errors = outputs.double() - wanted
        return {
            "count": float(len(targets)),
            "loss": float(self.loss(outputs, targets)) * len(targets),
            "numbers": float(wanted.numel()),
            "squares": float(errors.square().sum()),
            "absolute": float(errors.abs().sum()),
            "targets": float(wanted.sum()),
            "squared_targets": float(wanted.square().sum()),
        }

    def measured(self, sums: Mapping[str, float]) -> dict[str, float]:
        """R², mean absolute error and loss."""
        spread = sums["squared_targets"] - sums["targets"] ** 2 / sums["numbers"]
        return {
            "R²": 1 - sums["squares"] / spread if spread > 1e-12 * sums["squared_targets"] else nan,
            "MAE": sums["absolute"] / sums["numbers"],
            "loss": sums["loss"] / sums["count"],
        }

    def predict(self, outputs: Tensor) -> Tensor:
        """The numbers themselves."""
        return outputs

    def check_targets(self, targets: Tensor, outputs: int) -> str | None:
        """Finite floats, as many per example as the model gives."""
        if not targets.is_floating_point():
            return f"expected floats, found {describe(targets)}; for classes use task = 'classification'"
        if not bool(targets.isfinite().all()):
            return "expected numbers, found NaN or infinity among the targets"
        if targets[0].numel() != outputs:
            return f"expected {outputs} numbers per example, found {describe(targets)}"
        return None

    def check_outputs(self, outputs: Tensor, targets: Tensor, expected: int) -> str | None:
        """One number may also come without a dimension of its own."""
        if expected == 1 and outputs.shape == (len(targets),):
            return None
        return super().check_outputs(outputs, targets, expected)
