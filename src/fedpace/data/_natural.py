"""Clients as the user knows them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from fedpace.core import ConfigError, PartitionError, did_you_mean, numpy_stream
from fedpace.data._many import numbered
from fedpace.data._names import listed
from fedpace.data.examples import Examples, Indices
from fedpace.data.federation import Federation
from fedpace.data.hands import Hands
from fedpace.data.shard import Shard
from fedpace.data.shards import Brought, Dealt, Shards

T = TypeVar("T")

HELD_OUT = 0.2  # of the examples, where nobody brings a test set


def is_given(partition: Any) -> bool:
    """Whether these are clients' indices, by name or in a list, and no rule that deals examples."""
    if isinstance(partition, Mapping):
        return not isinstance(partition.get("name"), str)
    return isinstance(partition, Sequence | np.ndarray) and not isinstance(partition, str)


def given(
    name: str, train: Examples, test: Examples | None, hands: Any, seed: int, parameters: Mapping[str, Any]
) -> Federation:
    """Clients that hold the training examples at their indices; ``parameters`` are ``names`` and ``test_share``."""
    known = ["names", "test_share"]
    for key in parameters:
        if key not in known:
            raise ConfigError(f"partition: unknown parameter '{key}' beside indices; {did_you_mean(key, known)}")
    names, own = _named_hands(hands, parameters.get("names"))
    tested = None if test is None else whole(test)
    everyone, share = _everyone(name, Dealt(train, own), names, {}, tested, parameters.get("test_share"))
    if not share:
        return everyone
    kept, held_out = split_tests(own, share, numpy_stream(seed, "test share"))
    return replace(
        everyone,
        clients=Dealt(train, kept),
        client_tests=Dealt(train, held_out),
        test=Shard(train, held_out.joined()) if tested is None else tested,
    )


def _named_hands(hands: Any, names: Sequence[Any] | None) -> tuple[Sequence[str], Hands]:
    if isinstance(hands, Hands):
        return _labels(len(hands), names), hands
    clients = named(hands, names)
    return tuple(clients), Hands.of([_indices(client, hand) for client, hand in clients.items()])


def named(clients: Mapping[Any, T] | Sequence[T], names: Sequence[Any] | None = None) -> dict[str, T]:
    """Clients by their names: their own, those of a list in its order, or their numbers."""
    if isinstance(clients, Mapping):
        if names is not None:
            raise ConfigError("names: expected a list of clients beside names, found clients that have names")
        names, clients = tuple(clients), tuple(clients.values())
    return dict(zip(_labels(len(clients), names), clients, strict=True))


def _labels(clients: int, names: Sequence[Any] | None) -> Sequence[str]:
    if names is None:
        return numbered(clients)
    labels = tuple(map(str, names))
    if len(set(labels)) != clients or len(labels) != clients:
        raise PartitionError(f"names: expected another one for each of {clients} clients, found {listed(labels)}")
    return labels


def _indices(client: str, hand: Any) -> Indices:
    try:
        indices = np.asarray(hand)
    except ValueError:  # lists of different lengths
        indices = np.empty((0, 0))
    if indices.ndim == 1 and (not len(indices) or np.issubdtype(indices.dtype, np.integer)):
        return indices.astype(np.int64)
    raise PartitionError(
        f"client '{client}': expected a list of indices into the training examples, found {reprlib.repr(hand)}"
    )


def natural(
    name: str,
    clients: Mapping[str, Shard],
    tests: Mapping[str, Shard],
    test: Shard | None,
    share: float | None,
    seed: int,
) -> Federation:
    """Clients with the examples that are theirs.

    Those without an own test set among ``tests`` hold out a ``share`` of their examples; that is a fifth where neither
    they nor the federation have any other. Without a global ``test`` set, it is all of the clients' together.
    """
    everyone, share = _everyone(name, Brought(tuple(clients.values())), tuple(clients), tests, test, share)
    missing = [client for client in clients if client not in tests]
    if missing and not share:
        return everyone
    rng = numpy_stream(seed, "test share")
    kept, tested = dict(clients), dict(tests)
    for client in missing:
        shard = clients[client]
        own, held_out = split_tests(Hands.of([shard.indices]), share, rng)
        kept[client], tested[client] = replace(shard, indices=own[0]), replace(shard, indices=held_out[0])
    client_tests = tuple(tested[client] for client in clients)
    test = _together(client_tests) if test is None else test
    return replace(everyone, clients=tuple(kept.values()), client_tests=client_tests, test=test)


def _everyone(
    name: str,
    clients: Shards,
    names: Sequence[str],
    tests: Mapping[str, Shard],
    test: Shard | None,
    share: float | None,
) -> tuple[Federation, float]:
    """All examples of all clients, which checks them at once, and the share that those without tests hold out."""
    if not len(clients):
        raise PartitionError(f"'{name}': expected at least one client, found none")
    everyone = Federation(name, clients, names, clients[0] if test is None else test)
    if share is None:
        share = HELD_OUT if tests or test is None else 0.0
    if not (isinstance(share, int | float) and 0 <= share < 1):
        raise PartitionError(f"test_share: expected a number from 0 to less than 1, found {share!r}")
    if not share and test is None and len(tests) < len(clients):
        raise PartitionError(f"'{name}': expected a test set or a test_share above 0, found neither")
    return everyone, share


def split_tests(hands: Hands, share: float, rng: np.random.Generator) -> tuple[Hands, Hands]:
    """Split each client's examples at random: ``share`` of them, rounded up, for testing, and at least one to train."""
    sizes = hands.sizes
    short = np.flatnonzero(sizes < 2)
    if len(short):
        raise PartitionError(
            f"test_share = {share}: expected 2 examples or more of every client, found a client with {sizes[short[0]]};"
            " use fewer clients, more data or test_share = 0"
        )
    mixed = _shuffled(hands, rng)
    cuts = np.maximum(sizes - np.ceil(share * sizes).astype(np.int64), 1)
    trains = np.arange(len(mixed)) - np.repeat(hands.offsets[:-1] - hands.offsets[0], sizes) < np.repeat(cuts, sizes)
    return Hands.dealt(mixed[trains], cuts), Hands.dealt(mixed[~trains], sizes - cuts)


def _shuffled(hands: Hands, rng: np.random.Generator) -> Indices:
    """All examples, those of each client in random order: as if its own had been permuted, one client after another."""
    mixed = hands.joined().copy()
    sizes, starts = hands.sizes, hands.offsets[:-1] - hands.offsets[0]
    changes = np.flatnonzero(np.diff(sizes, prepend=-1, append=-1))  # neighbours of one size are shuffled together
    for first, last in pairwise(changes):
        part = mixed[starts[first] : starts[first] + (last - first) * sizes[first]].reshape(-1, sizes[first])
        rng.permuted(part, axis=1, out=part)
    return mixed


def whole(examples: Examples) -> Shard:
    """All examples of a data set."""
    return Shard(examples, np.arange(len(examples)))


def _together(shards: Sequence[Shard]) -> Shard:
    """One test set of all clients': a copy only where their data are not in one place."""
    first, *others = (shard.pool for shard in shards)
    if all(other is first for other in others):
        return Shard(first, np.concatenate([shard.indices for shard in shards]))
    first, *others = (shard.pool.take(shard.indices) for shard in shards)
    return whole(first.joined(*others))
