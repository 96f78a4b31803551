"""A federation of tables as one of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpace.data.encoding import Encoding
from fedpace.data.federation import Federation, Shard


def encoded(federation: Federation) -> Federation:
    """The same clients with float32 inputs, if their examples are rows of a table.

    What a test example or a client that is held out has does not change the encoding.
    """
    clients, tests, test = federation.clients, federation.client_tests or (), federation.test
    if test.pool.schema is None:
        return federation
    encoding = Encoding.fit(clients[0].pool, np.concatenate([client.indices for client in clients]))
    tested = np.zeros(len(test.pool), bool)  # a client's test examples may be in the global test set, too
    tested[np.concatenate([shard.indices for shard in (*tests, test)])] = True
    notes = encoding.notes(test.pool, np.flatnonzero(tested))
    arrays = {examples: encoding.encoded(examples) for examples in {clients[0].pool, test.pool}}

    def seen(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
        return tuple(replace(shard, pool=arrays[shard.pool]) for shard in shards)

    return replace(
        federation,
        clients=seen(clients),
        client_tests=None if federation.client_tests is None else seen(tests),
        test=replace(test, pool=arrays[test.pool]),
        encoding=encoding,
        notes=notes,
    )
