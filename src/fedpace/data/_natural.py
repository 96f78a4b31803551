"""Clients as the user knows them."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedpace.core import ConfigError, PartitionError, did_you_mean, numpy_stream
from fedpace.data._names import listed
from fedpace.data.examples import Examples, Indices
from fedpace.data.federation import Federation, Shard

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
    shards = {
        client: Shard(train, _indices(client, hand)) for client, hand in named(hands, parameters.get("names")).items()
    }
    return natural(name, shards, {}, None if test is None else whole(test), parameters.get("test_share"), seed)


def named(clients: Mapping[Any, T] | Sequence[T], names: Sequence[Any] | None = None) -> dict[str, T]:
    """Clients by their names: their own, those of a list in its order, or their numbers."""
    if isinstance(clients, Mapping):
        if names is not None:
            raise ConfigError("names: expected a list of clients beside names, found clients that have names")
        names, clients = tuple(clients), tuple(clients.values())
    labels = [str(name) for name in (range(len(clients)) if names is None else names)]
    if len(set(labels)) != len(clients) or len(labels) != len(clients):
        raise PartitionError(f"names: expected another one for each of {len(clients)} clients, found {listed(labels)}")
    return dict(zip(labels, clients, strict=True))


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
    if not clients:
        raise PartitionError(f"'{name}': expected at least one client, found none")
    shards = tuple(clients.values())
    everyone = Federation(name, shards, tuple(clients), shards[0] if test is None else test)  # checks all of it at once
    if share is None:
        share = HELD_OUT if tests or test is None else 0.0
    if not (isinstance(share, int | float) and 0 <= share < 1):
        raise PartitionError(f"test_share: expected a number from 0 to less than 1, found {share!r}")
    missing = [client for client in clients if client not in tests]
    if missing and not share:
        if test is None:
            raise PartitionError(f"'{name}': expected a test set or a test_share above 0, found neither")
        return everyone
    rng = numpy_stream(seed, "test share")
    kept, tested = dict(clients), dict(tests)
    for client in missing:
        own, held_out = split_test(clients[client].indices, share, rng)
        kept[client], tested[client] = replace(kept[client], indices=own), replace(kept[client], indices=held_out)
    client_tests = tuple(tested[client] for client in clients)
    test = _together(client_tests) if test is None else test
    return replace(everyone, clients=tuple(kept.values()), client_tests=client_tests, test=test)


def split_test(hand: Indices, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Split a client's examples at random: ``share`` of them, rounded up, for testing, and at least one to train."""
    hand = rng.permutation(hand)
    if len(hand) < 2:
        raise PartitionError(
            f"test_share = {share}: expected 2 examples or more of every client, found a client with {len(hand)}; "
            "use fewer clients, more data or test_share = 0"
        )
    cut = max(len(hand) - math.ceil(share * len(hand)), 1)
    return hand[:cut], hand[cut:]


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
