"""Clients that lie: their data are falsified when they are asked for, and are then what they would have been before."""

from dataclasses import replace

import numpy as np
import pytest

from fedpace.attacks import Attack, Backdoor, LabelFlip, SignFlip
from fedpace.core import DataError
from fedpace.data import Data, Examples, Hands, Shard, load
from fedpace.data.shards import Brought, written
from fedpace.engine.attackers import Attackers

from ..data.helpers import toy


def falsified(federation, attackers):
    """A federation in which each attacker's data were falsified at once."""

    def false(shard):
        examples = attackers.attack.poisoned(shard.pool.take(shard.indices))
        return replace(shard, pool=examples, indices=np.arange(len(examples)))

    clients = tuple(
        false(shard) if client in attackers.clients else shard for client, shard in enumerate(federation.clients)
    )
    return replace(federation, clients=clients)


@pytest.mark.parametrize("attack", [LabelFlip(), Backdoor(target=1, every=3)])
@pytest.mark.parametrize("shift", [None, "rotated"])
def test_data_are_falsified_when_they_are_asked_for(attack, shift):
    federation = load("digits").partition("dirichlet", clients=9, shift=shift)
    attackers = Attackers.among(9, 0.4, attack, seed=0)
    lazy, there = attackers.poisoned(federation), falsified(federation, attackers)
    assert lazy.fingerprint() == there.fingerprint() != federation.fingerprint()
    assert np.array_equal(lazy.counts(), there.counts())
    assert not np.array_equal(lazy.counts(), federation.counts())
    assert np.array_equal(lazy.sizes(), federation.sizes())
    assert list(map(written, lazy.clients)) == list(map(written, there.clients))
    assert written(lazy.clients[-1]) == written(there.clients[-1])
    assert len(lazy.pools()) == 2 + len(attackers.clients)


def test_who_falsifies_no_data_changes_nothing():
    federation = load("digits").partition("iid", clients=9)
    assert Attackers.among(9, 0.4, SignFlip(), seed=0).poisoned(federation) is federation


class Forgetful(Attack):
    """Drops an example."""

    def poisoned(self, examples):
        return examples.take(np.arange(1, len(examples)))


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (Forgetful(), r"attack '.*:Forgetful': expected as many examples as there are \(\d+\), found \d+"),
        (Backdoor(), "attack 'backdoor': expected uint8 images"),
    ],
)
def test_what_cannot_be_falsified_is_refused_at_once(attack, message):
    federation = Data("vectors", toy([0, 1] * 20), toy([0, 1])).partition("iid", clients=4)
    with pytest.raises(DataError, match=message):
        Attackers.among(4, 0.5, attack, seed=0).poisoned(federation)


def test_attackers_among_very_many_clients_are_falsified_one_by_one():
    many = 200_000
    examples = Examples(np.zeros((many, 1), np.float32), np.arange(many) % 3, ("a", "b", "c"))
    federation = Data("many", examples, examples.take(np.arange(3))).partition(Hands(np.arange(many + 1)))
    attackers = Attackers.among(many, 0.001, LabelFlip(), seed=0)
    assert len(attackers.clients) == 200
    counts = attackers.poisoned(federation).counts()
    expected = np.eye(3, dtype=int)[np.arange(many) % 3]
    for client in attackers.clients:
        expected[client] = expected[client][::-1]
    assert np.array_equal(counts, expected)


def test_clients_that_brought_their_data_are_falsified_too():
    shards = Brought(tuple(Shard(toy([0, 1, 1]), np.arange(3)) for _ in range(4)))
    federation = replace(
        Data("own", toy([0, 1] * 6), toy([0, 1])).partition("iid", clients=4), clients=shards, client_tests=None
    )
    poisoned = Attackers.among(4, 0.5, LabelFlip(), seed=0).poisoned(federation)
    assert sorted(map(tuple, poisoned.counts().tolist())) == [(1, 2), (1, 2), (2, 1), (2, 1)]
