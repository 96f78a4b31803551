"""The shards of all clients: each is made when it is asked for, and what concerns all of them is asked at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from fedpace.data._interleaved import Part, interleaved, parts_of
from fedpace.data._many import evenly
from fedpace.data.augmentations import Augmentation
from fedpace.data.examples import Examples, Indices, taken
from fedpace.data.hands import Hands
from fedpace.data.shard import Shard
from fedpace.data.shifts import Mechanism

SEEN = 100  # clients of a shift that stand for all of them: their shapes are looked at before training


class Shards(Sequence[Shard], ABC):
    """Clients' shards in order. Here each is looked at in turn; those that share their data know quicker ways."""

    @abstractmethod
    def shard(self, client: int) -> Shard:
        """The shard of a client, by its number from 0."""

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Shard, ...]: ...
    def __getitem__(self, index: int | slice) -> Shard | tuple[Shard, ...]:
        clients = range(len(self))[index]
        return self.shard(clients) if isinstance(clients, int) else tuple(map(self.shard, clients))

    def __iter__(self) -> Iterator[Shard]:
        return map(self.shard, range(len(self)))

    @property
    def sizes(self) -> Indices:
        """How many examples each client has."""
        return np.array([len(shard) for shard in self], dtype=np.int64)

    def joined(self) -> Indices:
        """The examples of all, one client's after another's."""
        return np.concatenate([np.empty(0, np.int64), *(shard.indices for shard in self)])

    def typical(self) -> Sequence[Shard]:
        """Some that stand for all in what they see: among them is one of each data set."""
        return self

    def counts(self) -> Iterator[Indices]:
        """Examples by class, clients × classes, of some clients after others."""
        for shard in self:
            yield shard.class_counts()[None]

    def check(self) -> None:
        """Indices must exist, and within one data set none may be used twice."""
        by_pool: dict[int, list[Shard]] = defaultdict(list)
        for shard in self:
            by_pool[id(shard.pool)].append(shard)
        for group in by_pool.values():
            Hands.of([shard.indices for shard in group]).check(len(group[0].pool))

    def written(self) -> Iterator[bytes]:
        """What a fingerprint is of: who holds which examples, with what targets, and how each one's first one looks."""
        for shard in self:
            yield written(shard)

    def with_pools(self, function: Callable[[Examples], Examples]) -> Shards:
        """The same clients with other data in the place of theirs."""
        return Brought(tuple(replace(shard, pool=function(shard.pool)) for shard in self))

    def shifted(self, mechanisms: Sequence[Mechanism]) -> Shards:
        """The same clients, each seeing its examples through a mechanism."""
        pairs = zip(self, mechanisms, strict=True)
        return Brought(tuple(replace(shard, mechanism=own) for shard, own in pairs))

    def augmented(self, augmentations: tuple[Augmentation, ...]) -> Shards:
        """The same clients, whose training batches are changed at random."""
        return Brought(tuple(replace(shard, augmentations=augmentations) for shard in self))


@dataclass(frozen=True, eq=False)
class Brought(Shards):
    """Shards that are there already, perhaps each of data of its own."""

    shards: Sequence[Shard]

    def __len__(self) -> int:
        return len(self.shards)

    def shard(self, client: int) -> Shard:
        """It is there."""
        return self.shards[client]


@dataclass(frozen=True, eq=False)
class Dealt(Shards):
    """Shards of one ``pool``: a million of them are two arrays, whatever is asked of all at once.

    >>> from fedpace.data import load
    >>> clients = load("digits").partition("iid", clients=700).clients
    >>> len(clients), len(clients[-1]), [len(shard) for shard in clients[:3]], int(clients.sizes.sum())
    (700, 2, [3, 3, 3], 1438)
    """

    pool: Examples
    hands: Hands
    mechanisms: Sequence[Mechanism] | None = None
    augmentations: tuple[Augmentation, ...] = ()

    def __len__(self) -> int:
        return len(self.hands)

    def shard(self, client: int) -> Shard:
        """Made of what concerns this client."""
        mechanism = None if self.mechanisms is None else self.mechanisms[client]
        return Shard(self.pool, self.hands.hand(client), mechanism, self.augmentations)

    @cached_property
    def sizes(self) -> Indices:
        """How many examples each client has."""
        return self.hands.sizes

    def joined(self) -> Indices:
        """The examples of all, one client's after another's."""
        return self.hands.joined()

    def typical(self) -> Sequence[Shard]:
        """One, or where clients see their examples differently some of them."""
        return [self[int(client)] for client in evenly(len(self), 1 if self.mechanisms is None else SEEN)]

    def counts(self) -> Iterator[Indices]:
        """Examples by class, clients × classes, of some clients after others."""
        kinds = len(self.pool.classes)
        for hands in self.hands.blocks():
            if kinds:
                cells = hands.owners() * kinds + self.pool.labels[hands.joined()]
                yield np.bincount(cells, minlength=len(hands) * kinds).reshape(-1, kinds)
            else:
                yield hands.sizes[:, None]

    def check(self) -> None:
        """Indices must exist, and none may be used twice."""
        self.hands.check(len(self.pool))

    def written(self) -> Iterator[bytes]:
        """The same bytes, of some clients after others."""
        start = 0
        for hands in self.hands.blocks():
            stop = start + len(hands)
            seen = None if self.mechanisms is None else self.mechanisms[start:stop]
            yield interleaved([*self._parts(hands), *_texts(seen, self.augmentations, len(hands))])
            start = stop

    def _parts(self, hands: Hands) -> Iterator[Part]:
        """What is written of the examples of some clients."""
        indices, one_each = hands.joined(), np.ones(len(hands), np.int64)
        yield Part.of(hands.sizes, one_each)
        yield Part.of(indices, hands.sizes)
        yield from parts_of(self.pool.targets[indices], hands.sizes)
        first = taken(self.pool.inputs, indices[hands.offsets[:-1] - hands.offsets[0]])
        for rows in first.values() if isinstance(first, Mapping) else [first]:
            yield from parts_of(rows, one_each)

    def with_pools(self, function: Callable[[Examples], Examples]) -> Dealt:
        """The same clients with other data in the place of theirs."""
        return replace(self, pool=function(self.pool))

    def shifted(self, mechanisms: Sequence[Mechanism]) -> Dealt:
        """The same clients, each seeing its examples through a mechanism."""
        return replace(self, mechanisms=mechanisms)

    def augmented(self, augmentations: tuple[Augmentation, ...]) -> Dealt:
        """The same clients, whose training batches are changed at random."""
        return replace(self, augmentations=augmentations)


def shards_of(shards: Sequence[Shard]) -> Shards:
    """Any shards as something that can be asked about all of them."""
    return shards if isinstance(shards, Shards) else Brought(shards)


def written(shard: Shard) -> bytes:
    """What a fingerprint is of: who holds which examples, with what targets, and how the first one looks."""
    first = taken(shard.pool.inputs, shard.indices[:1])
    return b"".join(
        [
            len(shard).to_bytes(8, "little"),
            shard.indices.tobytes(),
            shard.targets.tobytes(),
            *(rows.tobytes() for rows in (first.values() if isinstance(first, Mapping) else [first])),
            b"" if shard.mechanism is None else repr(shard.mechanism).encode(),
            repr(shard.augmentations).encode() if shard.augmentations else b"",
        ]
    )


def _texts(
    mechanisms: Sequence[Mechanism] | None, augmentations: tuple[Augmentation, ...], clients: int
) -> Iterator[Part]:
    """What is written of how clients see their examples."""
    if mechanisms is not None:
        yield Part.of_texts([repr(mechanism) for mechanism in mechanisms])
    if augmentations:
        yield Part.of_texts([repr(augmentations)] * clients)
