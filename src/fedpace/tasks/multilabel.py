"""Any number of labels per example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from fedpace.core import Metric
from fedpace.tasks._task import Sums, Task, tasks
from fedpace.tasks.classification import describe


@tasks.register("multilabel")
class Multilabel(Task):
    """Binary cross-entropy of several labels, each there or not; F1 over all labels and examples is the headline.

    Targets are a row of zeros and ones per example. ``exact`` is the share of examples whose labels are all right.

    >>> Multilabel().measured({"count": 2.0, "loss": 1.0, "hits": 3.0, "claimed": 4.0, "present": 4.0, "exact": 1.0})
    {'F1': 0.75, 'exact': 0.5, 'loss': 0.5}
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("F1", percent=True),
        Metric("exact", percent=True),
        Metric("loss", rises=False),
    )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Binary cross-entropy, the mean over labels."""
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """Labels that were claimed, that were there, and both."""
        claimed, present = self.predict(outputs), targets > 0
        return {
            "count": float(len(targets)),
            "loss": float(self.loss(outputs, targets)) * len(targets),
            "hits": float((claimed & present).sum()),
            "claimed": float(claimed.sum()),
            "present": float(present.sum()),
            "exact": float((claimed == present).all(1).sum()),
        }

    def measured(self, sums: Mapping[str, float]) -> dict[str, float]:
        """F1, exact matches and loss; without any label F1 is 1, because nothing was missed or invented."""
        either = sums["claimed"] + sums["present"]
        return {
            "F1": 2 * sums["hits"] / either if either else 1.0,
            "exact": sums["exact"] / sums["count"],
            "loss": sums["loss"] / sums["count"],
        }

    def predict(self, outputs: Tensor) -> Tensor:
        """Every label that is more likely than not."""
        return outputs > 0

    def check_targets(self, targets: Tensor, outputs: int) -> str | None:
        """A row of zeros and ones."""
        if targets.dim() != 2 or targets.shape[1] != outputs:
            return f"expected a row of {outputs} zeros and ones per example, found {describe(targets)}"
        if len(targets) and not bool(((targets == 0) | (targets == 1)).all()):
            return "expected labels of 0 or 1, found other values"
        return None
