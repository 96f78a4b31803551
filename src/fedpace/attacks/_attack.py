"""What attackers may do: falsify their data, their updates, and how many examples they claim."""

from __future__ import annotations

from abc import ABC

import torch
from torch import Tensor

from fedpace.core import DataError, Named, Registry
from fedpace.data import Examples


class Attack(Named, ABC):
    """What some clients do together instead of what they should. An attack states only what it falsifies.

    Attackers know everything: the updates of the honest clients of a round, and what they would have sent themselves.
    That is more than attackers know outside of simulations, so what a rule bears here it bears there.
    """

    def poisoned(self, examples: Examples) -> Examples:
        """The training examples of an attacker, as many as given: usually what they are."""
        return examples

    def forged(self, honest: Tensor, own: Tensor, generator: torch.Generator) -> Tensor:
        """What attackers send: f × d, in place of ``own``, beside the rows of the ``honest``. Usually their own."""
        return own

    def claimed(self, examples: int) -> int:
        """How many examples an attacker says it has: usually the truth."""
        return examples

    def goal(self, examples: Examples) -> Examples | None:
        """Test examples with the answers that the attackers want, if they want particular ones."""
        return None


attacks: Registry[Attack] = Registry("attack", Attack)


def noise(honest: Tensor, like: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    """Normal numbers, row by row ``scale`` times as long as an honest update is in the mean.

    They are drawn on the host, so that every device sees the same.
    """
    drawn = torch.randn(like.shape, generator=generator).to(like)
    return drawn.mul_(scale * float(honest.norm(dim=1).mean()) / like.shape[1] ** 0.5)


def check_classes(attack: Attack, examples: Examples) -> None:
    """Refuse data without classes."""
    if not examples.classes:
        raise DataError(f"attack '{attack.registered_name()}': expected classes to answer wrongly, found other targets")
