"""What an attacker sees of examples, and what it makes of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedpace.core import ConfigError, Named, Registry
from fedpace.tasks import Task


@dataclass(frozen=True)
class Evidence:
    """What an attacker sees of n examples.

    Attributes:
        outputs: The model's logits, n × classes; where the task has no classes, the losses, n × 1.
        losses: The model's loss on each example.
        confidences: How sure the model is of each example's class: log(p / (1 − p)), where p is its probability.
        shadows: The same of shadow models that the attacker trained, n × K.
        inside: Whether each of them was trained on the example, n × K.

    """

    outputs: NDArray[np.float64]
    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    confidences: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    shadows: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    inside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))

    def __len__(self) -> int:
        return len(self.outputs)

    def at(self, positions: NDArray[np.int64]) -> Evidence:
        """Of some of the examples; what is not known of any stays unknown."""
        parts = {name: values[positions] if len(values) else values for name, values in vars(self).items()}
        return Evidence(**parts)

    def check_finite(self) -> None:
        """Refuse what a model says that diverged."""
        if not np.isfinite(self.outputs).all():
            raise ConfigError("membership attack: expected finite logits, found NaN or infinity; the training diverged")


Scores = Callable[[Evidence], NDArray[np.float64]]
"""How much each example looks like a member: above 0 the attacker says that it is one."""


class Adversary(Named, ABC):
    """A membership attack. It is shown examples of which it knows what they are, and then scores others."""

    @abstractmethod
    def trained(self, members: Evidence, others: Evidence) -> Scores:
        """How this attacker scores examples, after it has seen some ``members`` and as many ``others``."""

    def unfit_for(self, task: Task) -> str | None:
        """Why this attack cannot be made on a task; nothing if it can."""
        return None

    @property
    def models(self) -> int:
        """How many shadow models it needs."""
        return 0


adversaries: Registry[Adversary] = Registry("membership attack", Adversary)


def with_threshold(score: Callable[[Evidence], NDArray[np.float64]], members: Evidence, others: Evidence) -> Scores:
    """A score, less the value that best tells these ``members`` and ``others`` apart."""
    of_members, of_others = np.sort(score(members)), np.sort(score(others))
    candidates = np.concatenate([of_members, of_others])
    right = np.searchsorted(of_others, candidates, "right") - np.searchsorted(of_members, candidates, "right")
    threshold = candidates[right.argmax()]
    return lambda seen: score(seen) - threshold
