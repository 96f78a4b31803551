"""A federation of tables as one of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpace.data.encoding import Encoding
from fedpace.data.federation import Federation
from fedpace.data.shards import shards_of


def encoded(federation: Federation) -> Federation:
    """The same clients with float32 inputs, if their examples are rows of a table.

    What a test example or a client that is held out has does not change the encoding.
    """
    test = federation.test
    if test.pool.schema is None:
        return federation
    clients, tests = shards_of(federation.clients), shards_of(federation.client_tests or ())
    encoding = Encoding.fit(clients[0].pool, clients.joined())
    tested = np.zeros(len(test.pool), bool)  # a client's test examples may be in the global test set, too
    tested[tests.joined()] = tested[test.indices] = True
    notes = encoding.notes(test.pool, np.flatnonzero(tested))
    arrays = {examples: encoding.encoded(examples) for examples in {clients[0].pool, test.pool}}
    return replace(
        federation,
        clients=clients.with_pools(arrays.__getitem__),
        client_tests=None if federation.client_tests is None else tests.with_pools(arrays.__getitem__),
        test=replace(test, pool=arrays[test.pool]),
        encoding=encoding,
        notes=notes,
    )
