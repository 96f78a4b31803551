"""Bucketing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._mixing import Mixing
from fedpace.aggregation._rule import rules
from fedpace.core import ConfigError, devices


@rules.register("bucketing")
class Bucketing(Mixing):
    """The ``rule`` of means of small groups, which differ less than clients do (Karimireddy et al., 2022).

    Clients are put into groups of ``size``, in an order that is drawn from the seed of the round; the last group may be
    smaller. A client counts as one in its group, and a group as many as it has clients, whatever their samples. One
    attacker spoils a group: the rule must bear as many of the N / ``size`` groups as there are attackers.
    Memory: N vectors, and what the rule needs. Time: O(Nd), and the rule's.

    >>> Bucketing(size=3)(torch.tensor([[1.0], [2.0], [6.0]]))
    tensor([3.])
    """

    size: int = Field(2, ge=1)

    def groups(self, clients: int) -> int:
        """How many groups there are."""
        return -(-clients // self.size)

    def bears(self, clients: int) -> int:
        """As many as the rule does of groups."""
        return self.rule.bears(self.groups(clients))

    def check(self, clients: int) -> None:
        """Refuse groups larger than the round, a rule that looks for one client, and what the rule refuses."""
        if self.trusted is not None:
            raise ConfigError("rule 'bucketing': expected a rule that trusts no single client, for it sees groups")
        if self.size > clients:
            raise ConfigError(
                f"rule 'bucketing', size = {self.size}: expected at most the clients of a round, found {clients}"
            )
        self.rule.check(self.groups(clients))

    def seen(self, clients: Sequence[int] | None) -> Sequence[int] | None:
        """Groups have no numbers."""
        return ()

    def mixes(self, rows: Rows, weights: list[float], seed: int) -> tuple[Tensor, list[float]]:
        """The shares of clients in groups."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(rows.clients, generator=generator, device=devices.HOST)
        members = torch.zeros(self.groups(rows.clients), rows.clients, dtype=torch.float64, device=devices.HOST)
        members[torch.arange(rows.clients, device=devices.HOST) // self.size, order] = 1
        sizes = members.sum(dim=1)
        return members / sizes[:, None], sizes.tolist()
