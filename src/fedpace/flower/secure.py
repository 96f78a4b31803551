"""Secure aggregation: the server learns sums over clients, and no client's own update."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Any, TypeVar, cast

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid

from fedpace.core import Buffers, ClientError, ConfigError, Update
from fedpace.flower._packing import DOUBLINGS, Opened, Packing
from fedpace.flower._replies import UNREADABLE, content_of, exchange, why
from fedpace.flower._secagg import (
    BANNED,
    COMMITMENT,
    CONFIG,
    SEEDS,
    UNREAD,
    VECTOR,
    Key,
    Stage,
    belongs,
    checked_key,
    commits,
    from_record,
    opened_secret,
    pair_mask,
    setup_config,
    shift,
    take_part,
    to_mask,
)
from fedpace.flower._wire import TOKEN
from fedpace.server import FEWEST, Guard, Secure, Weighing

log = logging.getLogger("fedpace")

SECURE = "train.secure"  # the type of message that our ClientApp answers
PACKING, ANSWER = "packing", "answer"  # records of a message: what the integers mean, and what is no secret

T = TypeVar("T")


@dataclass(frozen=True)
class SecureRound:
    """What an exchange ended with, and sums, or why there are none.

    ``answers`` say of each node why it failed, or the name of what it kept, if it kept anything.
    """

    answers: Mapping[int, int | str | None]
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


class _EndedError(Exception):
    """The sum stays closed: too few clients are left, or one of them made it impossible to open."""


@dataclass(frozen=True)
class _Dealt:
    """What a node gave for each neighbour, encrypted, and what tells whether its secret was put together rightly."""

    texts: dict[int, bytes]
    commitment: bytes | None


@dataclass(frozen=True)
class _Masked:
    """A masked vector, the neighbours whose shares its node could not read, and the name of what the node kept."""

    vector: dict[str, Any]
    unread: frozenset[int]
    token: int | None


@dataclass(frozen=True)
class _Disclosed:
    """A node's shares of others' secrets, and what it has in common with nodes that are left out."""

    shares: dict[int, bytes]
    seeds: dict[int, bytes]


class SecureExchange:
    """The server's side: four messages to each node of a cohort, after which the sum of their vectors can be read.

    A node that is lost on the way is left out of the sum, or in it once its vector has arrived, as long as enough
    others hold shares of its secrets. One that sends what its neighbours cannot read is left out alone. The server is
    taken to be curious, but to follow the protocol.
    """

    def __init__(self, grid: Grid, settings: Secure, timeout: float = 600.0) -> None:
        self._grid, self._settings, self._timeout = grid, settings, timeout
        self.bound = settings.bound
        self._distrusted: set[int] = set()  # nodes that made it impossible to open a sum

    def run(self, work: Mapping[int, RecordDict], size: int, buffers: Buffers, weighing: Weighing) -> SecureRound:
        """Send each node its ``work`` on a model of ``size`` coordinates, and sum what they answer."""
        packing = Packing.of(max(len(work), 1), size, buffers, weighing, self._settings, self.bound)
        talk = _Talk(self._grid, self._timeout)
        for node in self._distrusted & work.keys():
            talk.answers[node] = "left out: the sum of an earlier round could not be opened because of its shares"
        try:
            trusted = {node: content for node, content in work.items() if node not in self._distrusted}
            vector, clients = self._sum(trusted, packing, talk)
            opened = packing.open(vector, clients)
        except _EndedError as error:
            ended = f"secure aggregation ended early, {error}"
            return SecureRound(talk.answers, packing, ended=ended, silent=talk.silent)
        except ValueError as error:
            ended = f"secure aggregation: the sums are not used because no clients can have them ({error})"
            return SecureRound(talk.answers, packing, ended=ended, silent=talk.silent)
        self._raise_bound(opened.clipped)
        return SecureRound(talk.answers, packing, opened, silent=talk.silent)

    def _raise_bound(self, clipped: int) -> None:
        """After values were clipped the bound doubles, but not for ever: that they were is only what clients say."""
        if not clipped:
            return
        before, self.bound = self.bound, min(2 * self.bound, self._settings.bound * 2**DOUBLINGS)
        log.warning("secure aggregation clipped %d values at ±%g; from now on at ±%g", clipped, before, self.bound)

    def _sum(self, work: Mapping[int, RecordDict], packing: Packing, talk: _Talk) -> tuple[dict[str, Any], int]:
        shares, threshold = self._settings.counts(len(work), packing.asked)
        near = _neighbours(list(work), shares)

        def enough(of: Iterable[int], left: Mapping[int, object], when: str) -> None:
            """End the round unless the secrets of some can still be opened by those that are left."""
            fewest = min((len(near[node] & left.keys()) for node in of), default=0)
            if fewest < threshold:
                raise _EndedError(f"{fewest} of {shares} clients left {when}, expected {threshold}")

        enough(work, work, "at its start")
        first = setup_config(len(work), shares, threshold)
        keys = talk.ask(Stage.SETUP, dict.fromkeys(work, first), _keys)
        for node in _copies(keys):
            talk.drop(keys, node, "its public keys are those of another client")
        enough(keys, keys, f"after '{Stage.SETUP}'")

        offered = {node: {str(other): keys[other] for other in near[node] & keys.keys()} for node in keys}
        dealt = talk.ask(Stage.SHARE_KEYS, offered, lambda node, c: _dealt(c, near[node] & keys.keys() - {node}))
        enough(dealt, dealt, f"after '{Stage.SHARE_KEYS}'")

        sources = {node: sorted(near[node] & dealt.keys() - {node}) for node in dealt}
        forwarded = {
            node: {Key.SOURCE_LIST: others, Key.CIPHERTEXT_LIST: [dealt[other].texts[node] for other in others]}
            for node, others in sources.items()
        }
        like = packing.empty()
        tasks = {node: {**work[node], PACKING: packing.record()} for node in dealt}
        masked = talk.ask(
            Stage.COLLECT_MASKED_VECTORS, forwarded, lambda node, c: _masked(c, like, sources[node]), tasks
        )
        unread = {(reader, writer) for reader, answer in masked.items() for writer in answer.unread}
        banned = _to_blame(unread, masked.keys())
        for node in banned:
            talk.drop(masked, node, "it and its neighbours cannot read each other's shares")
        talk.answers |= {node: answer.token for node, answer in masked.items()}
        lost = dealt.keys() - masked.keys() - banned
        enough(dealt.keys() - banned, masked, f"after '{Stage.COLLECT_MASKED_VECTORS}'")

        readable = {node: sorted(near[node] & banned - masked[node].unread) for node in masked}
        who = {
            node: {
                Key.ACTIVE_NODE_ID_LIST: list(near[node] & masked.keys()),
                Key.DEAD_NODE_ID_LIST: list(near[node] & lost),
                **({BANNED: readable[node]} if readable[node] else {}),
            }
            for node in masked
        }
        held = talk.ask(Stage.UNMASK, who, lambda node, c: _disclosed(c, readable[node]))
        enough(dealt.keys() - banned, held, f"after '{Stage.UNMASK}'")

        for answer in masked.values():
            shift(like, answer.vector, up=True)
        known = {
            node: [held[other].shares[node] for other in near[node] & held.keys() if node in held[other].shares]
            for node in [*masked, *lost]
        }
        for node in masked:
            own = self._secret(node, known[node], threshold, partial(commits, dealt[node].commitment))
            shift(like, to_mask(own, like), up=False)
        for node in lost:
            private = self._secret(node, known[node], threshold, partial(belongs, keys[node][0]))
            for other in near[node] & masked.keys():  # what others have added for a client that is lost
                shift(like, pair_mask(private, keys[other][0], like), up=other < node)
        for node, others in readable.items():
            for other in others:  # what this one has added for a client that is left out
                if node not in held:
                    raise _EndedError(f"node {node} was lost, which knows what it has in common with node {other}")
                shift(like, to_mask(held[node].seeds[other], like), up=node < other)
        return like, len(masked)

    def _secret(self, node: int, known: Sequence[bytes], threshold: int, is_right: Callable[[bytes], bool]) -> bytes:
        if len(known) < threshold:
            raise _EndedError(f"{len(known)} shares of a secret, expected {threshold}")
        secret = opened_secret(known, threshold, is_right)
        if secret is None:
            self._distrusted.add(node)
            raise _EndedError(f"the secret of node {node} cannot be opened; it is left out from now on")
        return secret


class _Talk:
    """Asks nodes and remembers how each of them answered in the end."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self._grid, self._timeout = grid, timeout
        self.answers: dict[int, int | str | None] = {}
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
                    self.answers[node] = f"{why(error)} (at '{stage}')"
        return found

    def drop(self, found: dict[int, T], node: int, reason: str) -> None:
        """Leave out a node, whatever it answered."""
        found.pop(node, None)
        self.answers.setdefault(node, reason)


def secure_answer(message: Message, context: Context, train: Callable[[], tuple[Update, Buffers, int]]) -> Message:
    """The client's side: the answer to one message of the protocol.

    ``train`` does the client's work, and gives the update, the buffers that it must fit and the number of coordinates.
    A client whose update the server's guard would refuse says so instead of spoiling the sum, and so does one whose
    node's config wants more clients in a sum (``secure=5``) than could open this one.
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

    content = take_part(message, context, vector, demanded(context) or FEWEST)
    content[ANSWER] = ConfigRecord(token)
    return Message(content, reply_to=message)


def demanded(context: Context) -> int | None:
    """The fewest clients of a sum that this node takes part in, by its own config; ``None`` if it answers openly, too.

    ``secure=true`` demands that there are no open answers, a number also that no sum of less clients can be opened.
    """
    found = context.node_config.get("secure", False)
    if isinstance(found, bool):
        return FEWEST if found else None
    if not isinstance(found, int) or found < FEWEST:
        raise ConfigError(f"node config: secure: expected true, false or a number from {FEWEST}, found {found!r}")
    return found


def refuse_open(context: Context, updates: Sequence[Update]) -> None:
    """Nothing of what a node that demands secrecy has trained leaves it openly."""
    sent = any(update.vector is not None or update.buffers is not None or update.extras for update in updates)
    if sent and demanded(context) is not None:
        raise ClientError("this node's config (secure) lets it train within a secure sum only, found an open question")


def secure_update(client: int, answer: int | str | None) -> Update:
    """What the server hears from one client apart from its part in the sum: the name of what it kept, or a failure."""
    if isinstance(answer, str):
        return Update(client, failure=answer)
    return Update(client, state=None if answer is None else {TOKEN: torch.tensor(answer)})


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
    found = [checked_key(config[name]) for name in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2)]
    if found[0] == found[1]:
        raise ValueError("expected two public keys, found the same one twice")
    return found


def _copies(keys: Mapping[int, Sequence[bytes]]) -> list[int]:
    """The nodes of which not all keys are their own: keys are new in every round, so they have agreed on them."""
    owners = Counter(key for pair in keys.values() for key in pair)
    return [node for node, pair in keys.items() if any(owners[key] > 1 for key in pair)]


def _dealt(content: RecordDict, expected: Set[int]) -> _Dealt:
    config = content.config_records[CONFIG]
    texts = _by_node(config[Key.DESTINATION_LIST], config[Key.CIPHERTEXT_LIST])
    if texts.keys() != expected:
        raise ValueError(f"expected shares for {len(expected)} neighbours, found {len(texts)}")
    found = config.get(COMMITMENT)
    if not (found is None or isinstance(found, bytes)):
        raise TypeError(f"commitment: expected bytes, found {type(found).__name__}")
    return _Dealt(texts, found)


def _masked(content: RecordDict, like: Mapping[str, Any], sources: Sequence[int]) -> _Masked:
    found = from_record(content.array_records[VECTOR])
    shapes = [{name: (part.dtype, part.shape) for name, part in vector.items()} for vector in (found, like)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"wrong shape: expected {shapes[1]}, found {shapes[0]}")
    unread = frozenset(cast(list[int], content.config_records[CONFIG].get(UNREAD, [])))
    if not unread <= set(sources):
        raise ValueError("its list of neighbours whose shares it cannot read names others")
    token = content.config_records[ANSWER].get(TOKEN)
    if token is not None and not (isinstance(token, int) and 0 <= token < 2**63):
        raise ValueError("the name of what it kept is no number")
    return _Masked(found, unread, token)


def _disclosed(content: RecordDict, banned: Sequence[int]) -> _Disclosed:
    config = content.config_records[CONFIG]
    seeds = _by_node(banned, config[SEEDS]) if banned else {}
    return _Disclosed(_by_node(config[Key.NODE_ID_LIST], config[Key.SHARE_LIST]), seeds)


def _by_node(nodes: object, texts: object) -> dict[int, bytes]:
    """Two lists of a message as one dictionary."""
    if not (isinstance(nodes, list) and isinstance(texts, list) and all(isinstance(each, bytes) for each in texts)):
        raise TypeError("expected a list of nodes, and bytes for each")
    return dict(zip(nodes, texts, strict=True))


def _to_blame(unread: Set[tuple[int, int]], present: Set[int]) -> set[int]:
    """Who is left out so that all the others can read each other; ``unread`` are pairs of a reader and a writer.

    Whoever is in most pairs goes first: one that writes nonsense to all, or says so of all. Where it is one word
    against another, the writer goes.
    """
    blamed = {writer for _, writer in unread if writer not in present}
    while left := [pair for pair in unread if not blamed & set(pair)]:
        pairs, written = Counter(node for pair in left for node in pair), Counter(writer for _, writer in left)
        blamed.add(max(pairs, key=lambda node: (pairs[node], written[node], node)))
    return blamed
