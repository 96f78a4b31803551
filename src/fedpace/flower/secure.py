"""Secure aggregation: the server learns sums over clients, and no client's own update."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, TypeVar, cast

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid

from fedpace.core import Buffers, ClientError, Update, one_line
from fedpace.flower._packing import Opened, Packing
from fedpace.flower._replies import UNREADABLE, content_of, exchange
from fedpace.flower._secagg import (
    CONFIG,
    VECTOR,
    Key,
    Stage,
    combine_shares,
    from_record,
    pair_mask,
    setup_config,
    shift,
    take_part,
    to_mask,
)
from fedpace.flower._wire import TOKEN
from fedpace.server import Guard, Secure, Weighing

log = logging.getLogger("fedpace")

SECURE = "train.secure"  # the type of message that our ClientApp answers
PACKING, ANSWER = "packing", "answer"  # records of a message: what the integers mean, and what is no secret

T = TypeVar("T")


@dataclass(frozen=True)
class SecureRound:
    """What an exchange ended with: an answer or a failure per node, and sums, or why there are none."""

    answers: Mapping[int, RecordDict | str]
    packing: Packing
    opened: Opened | None = None
    ended: str = ""
    silent: Set[int] = frozenset()  # nodes that did not answer in time

    @property
    def extra_numbers(self) -> int:
        """How many more numbers of 4 bytes were sent than a plain answer has, without keys and shares."""
        plain = self.packing.size + self.packing.floats + self.packing.integers
        masked = sum(part.nbytes for part in self.packing.empty().values())
        return (masked // 4 - plain) * len(self.answers)


class _TooFewError(Exception):
    """So few clients are left that the sum stays closed."""


class SecureExchange:
    """The server's side: four messages to each node of a cohort, after which the sum of their vectors can be read.

    A node that is lost on the way is left out of the sum, or in it once its vector has arrived, as long as enough
    others hold shares of its secrets. The server is taken to be curious, but to follow the protocol.
    """

    def __init__(self, grid: Grid, settings: Secure, timeout: float = 600.0) -> None:
        self._grid, self._settings, self._timeout = grid, settings, timeout
        self.bound = settings.bound

    def run(self, work: Mapping[int, RecordDict], size: int, buffers: Buffers, weighing: Weighing) -> SecureRound:
        """Send each node its ``work`` on a model of ``size`` coordinates, and sum what they answer."""
        packing = Packing.of(max(len(work), 1), self.bound, size, buffers, weighing)
        talk = _Talk(self._grid, self._timeout)
        try:
            vector, clients = self._sum(work, packing, talk)
        except _TooFewError as error:
            ended = f"secure aggregation ended early, {error}"
            return SecureRound(talk.answers, packing, ended=ended, silent=talk.silent)
        opened = packing.open(vector, clients)
        if opened.clipped:
            self.bound *= 2
            log.warning(
                "secure aggregation clipped %d values at ±%g; from now on at ±%g",
                opened.clipped,
                packing.bound,
                self.bound,
            )
        return SecureRound(talk.answers, packing, opened, silent=talk.silent)

    def _sum(self, work: Mapping[int, RecordDict], packing: Packing, talk: _Talk) -> tuple[dict[str, Any], int]:
        shares, threshold = self._settings.counts(len(work))
        near = _neighbours(list(work), shares)

        def enough(of: Mapping[int, object], left: Mapping[int, object], when: str) -> None:
            """End the round unless the secrets of some can still be opened by those that are left."""
            fewest = min((len(near[node] & left.keys()) for node in of), default=0)
            if fewest < threshold:
                raise _TooFewError(f"{fewest} of {shares} clients left {when}, expected {threshold}")

        enough(work, work, "at its start")
        first = setup_config(len(work), shares, threshold)
        keys = talk.ask(Stage.SETUP, dict.fromkeys(work, first), _keys)
        enough(keys, keys, f"after '{Stage.SETUP}'")

        offered = {node: {str(other): keys[other] for other in near[node] & keys.keys()} for node in keys}
        secrets = talk.ask(
            Stage.SHARE_KEYS, offered, lambda node, c: _ciphertexts(c, offered[node].keys() - {str(node)})
        )
        enough(secrets, secrets, f"after '{Stage.SHARE_KEYS}'")

        forwarded: dict[int, Any] = {}
        for node in secrets:
            sources = [other for other in near[node] & secrets.keys() if other != node]
            sent = [secrets[source][node] for source in sources]
            forwarded[node] = {Key.SOURCE_LIST: sources, Key.CIPHERTEXT_LIST: sent}
        like = packing.empty()
        tasks = {node: {**work[node], PACKING: packing.record()} for node in secrets}
        vectors = talk.ask(Stage.COLLECT_MASKED_VECTORS, forwarded, lambda _, c: _vector(c, like), tasks)
        enough(secrets, vectors, f"after '{Stage.COLLECT_MASKED_VECTORS}'")

        lost = secrets.keys() - vectors.keys()
        who = {
            node: {
                Key.ACTIVE_NODE_ID_LIST: list(near[node] & vectors.keys()),
                Key.DEAD_NODE_ID_LIST: list(near[node] & lost),
            }
            for node in vectors
        }
        held = talk.ask(Stage.UNMASK, who, _shares)
        enough(secrets, held, f"after '{Stage.UNMASK}'")

        for vector in vectors.values():
            shift(like, vector, up=True)
        for node in secrets:
            known = [shares[node] for shares in held.values() if node in shares]
            if len(known) < threshold:
                raise _TooFewError(f"{len(known)} shares of a secret, expected {threshold}")
            try:
                secret = combine_shares(known[:threshold])
            except ValueError as error:
                raise _TooFewError(f"a secret cannot be opened ({error})") from None
            if node in vectors:
                shift(like, to_mask(secret, like), up=False)
                continue
            for other in near[node] & vectors.keys():  # what others have added for a client that is lost
                shift(like, pair_mask(secret, keys[other][0], like), up=other < node)
        return like, len(vectors)


class _Talk:
    """Asks nodes and remembers how each of them answered in the end."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self._grid, self._timeout = grid, timeout
        self.answers: dict[int, RecordDict | str] = {}
        self.silent: set[int] = set()

    def ask(
        self,
        stage: str,
        configs: Mapping[int, Mapping[str, Any]],
        read: Callable[[int, RecordDict], T],
        work: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> dict[int, T]:
        """One stage of the protocol: what each node answered, without those that did not."""
        messages = {}
        for node, config in configs.items():
            records = {CONFIG: ConfigRecord({Key.STAGE: stage, **config}), **(work[node] if work is not None else {})}
            messages[node] = Message(RecordDict(records), node, SECURE, ttl=self._timeout)
        replies = exchange(self._grid, messages, self._timeout)
        self.silent |= messages.keys() - replies.keys()
        found = {}
        for node in configs:
            try:
                content = content_of(replies.get(node))
                found[node] = read(node, content)
            except UNREADABLE as error:
                # A vector that has arrived is summed, whatever becomes of its node.
                if stage != Stage.UNMASK:
                    self.answers[node] = f"{one_line(error)} (at '{stage}')"
                continue
            if stage == Stage.COLLECT_MASKED_VECTORS:
                self.answers[node] = content
        return found


def secure_answer(message: Message, context: Context, train: Callable[[], tuple[Update, Buffers, int]]) -> Message:
    """The client's side: the answer to one message of the protocol.

    ``train`` does the client's work, and gives the update, the buffers that it must fit and the number of coordinates.
    A client whose update the server's guard would refuse says so instead of spoiling the sum.
    """
    token: dict[str, ConfigRecordValues] = {}

    def vector() -> dict[str, Any]:
        update, buffers, size = train()
        reason = Guard().reason_to_drop(update, size, buffers)
        if reason is not None:
            raise ClientError(reason)
        if update.state is not None:
            token[TOKEN] = int(update.state[TOKEN])
        return Packing.read(message.content.config_records[PACKING]).pack(update)

    content = take_part(message, context, vector)
    content[ANSWER] = ConfigRecord(token)
    return Message(content, reply_to=message)


def secure_update(client: int, answer: RecordDict | str | None) -> Update:
    """What the server hears from one client apart from its part in the sum: the name of what it kept, or a failure."""
    if answer is None:
        return Update(client)
    if isinstance(answer, str):
        return Update(client, failure=answer)
    token = answer.config_records[ANSWER].get(TOKEN)
    return Update(client, state=None if token is None else {TOKEN: torch.tensor(token)})


def _neighbours(nodes: list[int], shares: int) -> dict[int, set[int]]:
    """Who shares secrets with whom: everybody, or on a ring of random order the nearest on both sides; and itself."""
    order = SystemRandom().sample(nodes, len(nodes))
    if shares >= len(order):
        return {node: set(order) for node in order}
    half = shares // 2
    return {
        node: {order[(at + offset) % len(order)] for offset in range(-half, half + 1)} for at, node in enumerate(order)
    }


def _keys(node: int, content: RecordDict) -> list[bytes]:
    config = content.config_records[CONFIG]
    return [cast(bytes, config[Key.PUBLIC_KEY_1]), cast(bytes, config[Key.PUBLIC_KEY_2])]


def _ciphertexts(content: RecordDict, expected: set[str]) -> dict[int, bytes]:
    config = content.config_records[CONFIG]
    to, texts = cast(list[int], config[Key.DESTINATION_LIST]), cast(list[bytes], config[Key.CIPHERTEXT_LIST])
    if set(map(str, to)) != expected:
        raise ValueError(f"expected shares for {len(expected)} neighbours, found {len(to)}")
    return dict(zip(to, texts, strict=True))


def _vector(content: RecordDict, like: Mapping[str, Any]) -> dict[str, Any]:
    found = from_record(content.array_records[VECTOR])
    shapes = [{name: (part.dtype, part.shape) for name, part in vector.items()} for vector in (found, like)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"wrong shape: expected {shapes[1]}, found {shapes[0]}")
    return found


def _shares(node: int, content: RecordDict) -> dict[int, bytes]:
    config = content.config_records[CONFIG]
    of, shares = cast(list[int], config[Key.NODE_ID_LIST]), cast(list[bytes], config[Key.SHARE_LIST])
    return dict(zip(of, shares, strict=True))
