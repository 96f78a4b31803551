"""Text: what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from fedpace.core import ACCURACY, Metric
from fedpace.tasks._task import Sums, Task, tasks
from fedpace.tasks.classification import describe

PADDING = -100  # a target that does not count: torch's default


@tasks.register("next_token")
class NextToken(Task):
    """The next token at every place of a text; the share that is right is the headline, perplexity stands beside it.

    A target is a row of tokens as long as its text; places with the target −100 pad shorter texts and do not count.
    A model gives a score for every token of the vocabulary at every place.

    >>> round(NextToken().measured({"count": 10.0, "loss": 6.931, "correct": 5.0})["perplexity"], 3)
    2.0
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        ACCURACY,
        Metric("perplexity", rises=False),
        Metric("loss", rises=False),
    )
    padding: ClassVar[int] = PADDING

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy per token."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING)

    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """Tokens, correct ones, and summed cross-entropy."""
        flat = targets.flatten()
        loss = F.cross_entropy(outputs.flatten(0, 1), flat, ignore_index=PADDING, reduction="sum")
        right = (self.predict(outputs) == targets).sum()
        return {"count": float((flat != PADDING).sum()), "loss": float(loss), "correct": float(right)}

    def measured(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Accuracy, perplexity and loss per token."""
        loss = sums["loss"] / sums["count"]
        return {
            "accuracy": sums["correct"] / sums["count"],
            "perplexity": exp(loss) if loss < 700 else inf,
            "loss": loss,
        }

    def predict(self, outputs: Tensor) -> Tensor:
        """The likeliest token at every place."""
        return outputs.argmax(-1)

    def check_targets(self, targets: Tensor, outputs: int) -> str | None:
        """Rows of tokens below the size of the vocabulary."""
        if targets.is_floating_point() or targets.dim() != 2:
            return f"expected a row of tokens per text, found {describe(targets)}"
        tokens = targets[targets != PADDING]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < outputs:
            return f"expected tokens from 0 to {outputs - 1}, found {int(tokens.min())} to {int(tokens.max())}"
        return None

    def check_outputs(self, outputs: Tensor, targets: Tensor, expected: int) -> str | None:
        """A score for every token at every place."""
        wanted = (*targets.shape, expected)
        return None if tuple(outputs.shape) == wanted else f"expected outputs of shape {wanted}"
