"""Clients that lie: who they are, what they train on, and what arrives of them at the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedpace.attacks import Attack
from fedpace.core import ConfigError, DataError, Update, derive, numpy_stream, torch_stream
from fedpace.data import Federation, Shard, Shards, shards_of
from fedpace.data.examples import Indices
from fedpace.engine.cohort import drawn
from fedpace.wire import Wire

TRIED = 100  # attackers whose falsified examples are looked at before training


@dataclass(frozen=True, eq=False)
class _Poisoned(Shards):
    """The shards of all clients, those of attackers falsified when they are asked for."""

    true: Shards
    attackers: frozenset[int]
    attack: Attack

    def __len__(self) -> int:
        return len(self.true)

    def shard(self, client: int) -> Shard:
        """What this client trains on."""
        shard = self.true[client]
        if client not in self.attackers:
            return shard
        own = shard.pool.take(shard.indices)
        false = self.attack.poisoned(own)
        if len(false) != len(own):
            name = self.attack.registered_name()
            raise DataError(f"attack '{name}': expected as many examples as there are ({len(own)}), found {len(false)}")
        return shard if false is own else replace(shard, pool=false, indices=np.arange(len(false)))

    @property
    def sizes(self) -> Indices:
        """As many examples as there are true ones."""
        return self.true.sizes

    def typical(self) -> Sequence[Shard]:
        """Those of honest clients and some of attackers."""
        return [*self.true.typical(), *map(self.shard, sorted(self.attackers)[:TRIED])]

    def counts(self) -> Iterator[Indices]:
        """Examples by class, clients × classes, of some clients after others."""
        start, attackers = 0, np.sort(np.fromiter(self.attackers, np.int64))
        for counts in self.true.counts():
            stop = start + len(counts)
            for client in attackers[slice(*np.searchsorted(attackers, [start, stop]))]:
                counts[client - start] = self.shard(int(client)).class_counts()
            yield counts
            start = stop

    def check(self) -> None:
        """What is falsified is a copy: the true ones may not be used twice."""
        self.true.check()


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
        return cls(frozenset(drawn(numpy_stream(seed, "attackers"), population, number)), attack, seed)

    def poisoned(self, federation: Federation) -> Federation:
        """The same clients, of whom the attackers train on what they falsified."""
        if type(self.attack).poisoned is Attack.poisoned:
            return federation
        return replace(federation, clients=_Poisoned(shards_of(federation.clients), self.clients, self.attack))

    def forged(self, answers: Iterable[Update], number: int, wire: Wire) -> Iterator[Update]:
        """The answers of a round, those of attackers as they want them, as far as their format carries it."""
        kept = [answer.owned() for answer in answers]
        liars = [at for at, answer in enumerate(kept) if answer.client in self.clients and answer.vector is not None]
        honest = [answer.vector for answer in kept if answer.client not in self.clients and answer.vector is not None]
        if liars and honest:
            own = torch.stack([kept[at].vector for at in liars])  # type: ignore[misc]  # those without were left out
            rows = self.attack.forged(torch.stack(honest), own, torch_stream(self.seed, "attack", number))
            for at, row in zip(liars, rows, strict=True):
                sent = wire.carried(row, derive(self.seed, "attack", number, kept[at].client))
                kept[at] = replace(kept[at], vector=sent, examples=self.attack.claimed(kept[at].examples))
        yield from kept
