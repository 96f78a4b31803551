"""Clients that lie: who they are, what they train on, and what arrives of them at the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedpace.attacks import Attack
from fedpace.core import ConfigError, Update, numpy_stream, torch_stream
from fedpace.data import Federation, Shard


@dataclass(frozen=True)
class Attackers:
    """Some clients and their attack.

    Attackers know all updates of a round, so what they send is made where updates arrive, whatever carries them: the
    results are the same on every engine. All rows of a round are kept for it.
    """

    clients: frozenset[int]
    attack: Attack
    seed: int

    @classmethod
    def among(cls, population: int, share: float, attack: Attack, seed: int) -> Attackers | None:
        """A ``share`` of all clients, the same ones whenever the run has this seed; nobody if it is 0."""
        if not share:
            return None
        number = int(share * population + 1e-9)
        if not 0 < number < population:
            raise ConfigError(
                f"attackers: {share:g} of {population} clients are {number}: expected at least one, and not all"
            )
        chosen = numpy_stream(seed, "attackers").choice(population, number, replace=False)
        return cls(frozenset(int(client) for client in chosen), attack, seed)

    def poisoned(self, federation: Federation) -> Federation:
        """The same clients, of whom the attackers train on what they falsified."""
        clients = tuple(
            self._poisoned(shard) if client in self.clients else shard
            for client, shard in enumerate(federation.clients)
        )
        return replace(federation, clients=clients)

    def _poisoned(self, shard: Shard) -> Shard:
        true = shard.pool.take(shard.indices)
        false = self.attack.poisoned(true)
        return shard if false is true else replace(shard, pool=false, indices=np.arange(len(false)))

    def forged(self, answers: Iterable[Update], number: int) -> Iterator[Update]:
        """The answers of a round, those of attackers as they want them."""
        kept = [answer.owned() for answer in answers]
        liars = [at for at, answer in enumerate(kept) if answer.client in self.clients and answer.vector is not None]
        honest = [answer.vector for answer in kept if answer.client not in self.clients and answer.vector is not None]
        if liars and honest:
            own = torch.stack([kept[at].vector for at in liars])  # type: ignore[misc]  # those without were left out
            rows = self.attack.forged(torch.stack(honest), own, torch_stream(self.seed, "attack", number))
            for at, row in zip(liars, rows, strict=True):
                kept[at] = replace(kept[at], vector=row, examples=self.attack.claimed(kept[at].examples))
        yield from kept
