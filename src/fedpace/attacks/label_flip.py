"""Honest training on false labels."""

from __future__ import annotations

from dataclasses import replace

from fedpace.attacks._attack import Attack, attacks, check_classes
from fedpace.data import Examples


@attacks.register("label_flip")
class LabelFlip(Attack):
    """Attackers train as they should, but class y is called C − 1 − y (Fang et al., 2020)."""

    def poisoned(self, examples: Examples) -> Examples:
        """The same inputs under other labels."""
        check_classes(self, examples)
        return replace(examples, targets=len(examples.classes) - 1 - examples.labels)
