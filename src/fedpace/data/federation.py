"""Clients and their examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any

import numpy as np

from fedpace.core import PartitionError, derive, for_html, numpy_stream
from fedpace.data._many import Lazy, evenly
from fedpace.data.augmentations import Augmentation, parse_augmentations
from fedpace.data.encoding import Encoding
from fedpace.data.examples import Examples, Indices, Shape
from fedpace.data.shard import Shard
from fedpace.data.shards import Shards, shards_of, written
from fedpace.data.shifts import Mechanism, Population, Shift

MOST_ROWS = 100  # of a table in a notebook


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their training shards, and a test set.

    ``client_tests`` holds one test shard per client where the partition has a ``test_share`` (personalised methods need
    them); the ``test`` set is then all of them together, unless the partition holds one out. No client is empty, and no
    example belongs to two clients. Where the data were a table, ``encoding`` is how it became inputs; ``notes`` are
    lines for the user.

    Of clients that were dealt one data set, each shard and each name that is a number is made when it is asked for.
    What concerns all of them is asked of the federation, which looks at arrays and not at each client.
    """

    name: str
    clients: Sequence[Shard]
    client_names: Sequence[str]
    test: Shard
    client_tests: Sequence[Shard] | None = None
    encoding: Encoding | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        clients, tests = self._shards, self._shards if self._tests is None else self._tests
        if not len(clients) == len(self.client_names) == len(tests) > 0:
            raise PartitionError(
                f"expected at least one client, and as many names and tests as clients; found {len(clients)} "
                f"clients, {len(self.client_names)} names and {len(tests)} tests"
            )
        self._check_sizes(clients, "training examples; use fewer clients, a larger alpha or more data")
        self._check_sizes(tests, "test examples; use fewer clients or a larger test_share")
        clients.check()
        forms = {str(shard.form) for shard in self._typical}
        if len(forms) > 1:
            raise PartitionError(f"expected examples of one shape, found {', '.join(sorted(forms))}")

    def _check_sizes(self, shards: Shards, what: str) -> None:
        empty = np.flatnonzero(shards.sizes == 0)
        if len(empty):
            raise PartitionError(f"client '{self.client_names[empty[0]]}' has no {what}")

    @cached_property
    def _shards(self) -> Shards:
        return shards_of(self.clients)

    @cached_property
    def _tests(self) -> Shards | None:
        return None if self.client_tests is None else shards_of(self.client_tests)

    @cached_property
    def _typical(self) -> list[Shard]:
        """Shards that stand for all, among them one of each data set."""
        return [*self._shards.typical(), *(self._tests.typical() if self._tests is not None else ()), self.test]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.test.pool.classes

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return self.test.pool.outputs

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it; of rows that differ in length, the longest one's."""
        shapes: list[Any] = [shard.shape for shard in self._typical]
        if isinstance(shapes[0], dict):
            return {name: max(shape[name] for shape in shapes) for name in shapes[0]}
        longest: tuple[int, ...] = max(shapes)
        return longest

    def __len__(self) -> int:
        return len(self.clients)

    def counts(self) -> Indices:
        """Training examples, clients × classes; of all kinds together where there are no classes."""
        return np.concatenate(list(self.counted()))

    def counted(self) -> Iterator[Indices]:
        """The same of some clients after others: of a million clients all of it would take much memory."""
        return self._shards.counts()

    def sizes(self) -> Indices:
        """How many training examples each client has."""
        return self._shards.sizes

    def pools(self) -> list[Examples]:
        """The data sets of clients and tests, each once."""
        return list({id(shard.pool): shard.pool for shard in self._typical}.values())

    def shifted(self, shift: Shift, seed: int = 0) -> Federation:
        """The same clients, each seeing its examples through a mechanism of its own, and a test set through another."""
        for examples in self.pools():
            shift.check(examples)
        population = Population(len(self), len(self.classes), derive(seed, "shift"))
        mechanisms = Lazy(partial(_mechanism, shift, population), range(len(self)))
        return replace(
            self,
            name=f"{self.name}/{shift.registered_name()}",
            clients=self._shards.shifted(mechanisms),
            client_tests=None if self._tests is None else self._tests.shifted(mechanisms),
            test=replace(self.test, mechanism=shift.for_test(population)),
        )

    def augmented(self, *augmentations: str | Mapping[str, Any] | Augmentation | Callable[..., Any]) -> Federation:
        """The same clients, whose training batches are changed at random; tests and what gradients see are not.

        Each is a registered name, a table with ``name``, a function ``(inputs, rng) -> inputs`` or its import path.

        >>> from fedpace.data import load
        >>> load("digits").partition("iid").augmented("flip", {"name": "crop", "padding": 1}).clients[0].augmentations
        (Flip(p=0.5), Crop(padding=1, border='zero'))
        """
        chosen = parse_augmentations(augmentations)
        for augmentation in chosen:
            for examples in {id(shard.pool): shard.pool for shard in self._shards.typical()}.values():
                augmentation.check(examples)
        clients = self._shards.augmented(chosen)
        clients[0].batch(slice(2), numpy_stream(0, "trial"))  # before training, where a mistake would be each client's
        return replace(self, clients=clients)

    def fingerprint(self) -> str:
        """A digest of who holds which labels: other data, another deal or another shift of them have another one."""
        digest = blake2b(f"({self.classes!r}, {self.shape!r}, ".encode(), digest_size=16)
        for text in _representation(self.client_names):
            digest.update(text.encode())
        digest.update(b")")
        for shards in filter(None, (self._shards, self._tests)):
            for data in shards.written():
                digest.update(data)
        digest.update(written(self.test))
        if self.encoding is not None:
            digest.update(json.dumps(self.encoding.to_json()).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        examples = self.sizes().sum()
        return (
            f"Federation('{self.name}': {len(self)} clients with {examples} examples, {len(self.test)} test examples, "
            f"{kind_of_targets(self.test.pool)}, shape {self.shape})"
        )

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{for_html(cell)}</th>" for cell in ("client", *(self.classes or ("examples",))))
        shown = evenly(len(self), MOST_ROWS)
        rows = (
            f"<tr><th>{for_html(self.client_names[client])}</th>"
            f"{''.join(f'<td>{count}</td>' for count in self.clients[client].class_counts())}</tr>"
            for client in shown
        )
        of_many = f"<p>{len(shown)} of {len(self)} clients shown</p>" if len(shown) < len(self) else ""
        return f"<p>{for_html(repr(self))}</p><table><tr>{header}</tr>{''.join(rows)}</table>{of_many}"


def kind_of_targets(examples: Examples) -> str:
    """What is to be learnt, in words."""
    if examples.classes:
        return f"{len(examples.classes)} classes"
    return f"{len(examples.vocabulary)} tokens" if examples.vocabulary else f"{examples.outputs} number(s) to predict"


def _mechanism(shift: Shift, population: Population, client: int) -> Mechanism:
    return shift.for_client(client, population)


def _representation(names: Sequence[str]) -> Iterator[str]:
    """The ``repr`` of a tuple of all names, in pieces: that of a million names would take much memory."""
    yield "("
    for start in range(0, len(names), 1000):
        yield (", " if start else "") + ", ".join(map(repr, names[start : start + 1000]))
    yield ",)" if len(names) == 1 else ")"
