"""One sum of what nodes answer, of which nobody sees a part: the server's side of SecAgg+, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Any, TypeVar, cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpace.flower._packing import Packing
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
    to_mask,
)
from fedpace.flower._wire import TOKEN
from fedpace.server import Secure

SECURE = "train.secure"  # the type of message that our ClientApp answers
PACKING, ANSWER = "packing", "answer"  # records of a message: what the integers mean, and what is no secret

T = TypeVar("T")


class EndedError(Exception):
    """The sum stays closed: too few clients are left, or one of them, who is ``guilty``, made it impossible to open."""

    def __init__(self, reason: str, guilty: int | None = None) -> None:
        super().__init__(reason)
        self.guilty = guilty


class Talk:
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


class SecretSum:
    """The sum of what nodes make of their ``work``, under way.

    ``near`` says among whom each node's secrets are shared, itself included; ``threshold`` shares open a secret.
    """

    def __init__(self, talk: Talk, work: Mapping[int, RecordDict], packing: Packing, settings: Secure) -> None:
        self._talk, self._work, self._packing = talk, work, packing
        self._shares, self._threshold = settings.counts(len(work), packing.asked)
        self._near = neighbours(list(work), self._shares)

    def run(self) -> tuple[dict[str, Any], int]:
        """The sum, and of how many clients, after four questions; an :class:`EndedError` says why there is none."""
        self._enough(self._work, self._work, "at its start")
        keys = self._keys()
        dealt = self._dealt(keys)
        masked, banned = self._masked(dealt)
        # The neighbours that are left out, and whose masks are in a node's vector all the same.
        owed = {node: sorted(self._near[node] & banned - answer.unread) for node, answer in masked.items()}
        lost = dealt.keys() - masked.keys() - banned
        held = self._disclosed(masked, lost, owed)
        total = self._packing.empty()
        for answer in masked.values():
            shift(total, answer.vector, up=True)
        for node in masked:
            own = self._secret(node, held, partial(commits, dealt[node].commitment))
            shift(total, to_mask(own, total), up=False)
        for node in lost:
            private = self._secret(node, held, partial(belongs, keys[node][0]))
            for other in self._near[node] & masked.keys():  # what others have added for a client that is lost
                shift(total, pair_mask(private, keys[other][0], total), up=other < node)
        for node, others in owed.items():
            for other in others:
                shift(total, to_mask(_seed(node, other, held), total), up=node < other)
        return total, len(masked)

    def _keys(self) -> dict[int, list[bytes]]:
        """Each node's public keys."""
        first = setup_config(len(self._work), self._shares, self._threshold)
        keys = self._talk.ask(Stage.SETUP, dict.fromkeys(self._work, first), lambda _, content: _keys_in(content))
        for node in _copies(keys):
            self._talk.drop(keys, node, "its public keys are those of another client")
        self._enough(keys, keys, f"after '{Stage.SETUP}'")
        return keys

    def _dealt(self, keys: Mapping[int, Sequence[bytes]]) -> dict[int, _Dealt]:
        """Shares of each node's secrets, which only its neighbours can read."""
        near = {node: self._near[node] & keys.keys() for node in keys}
        offered = {node: {str(other): keys[other] for other in others} for node, others in near.items()}
        dealt = self._talk.ask(Stage.SHARE_KEYS, offered, lambda node, content: _dealt_in(content, near[node] - {node}))
        self._enough(dealt, dealt, f"after '{Stage.SHARE_KEYS}'")
        return dealt

    def _masked(self, dealt: Mapping[int, _Dealt]) -> tuple[dict[int, _Masked], set[int]]:
        """The nodes' masked vectors, and who is left out because some cannot read each other."""
        stage, like, packing = Stage.COLLECT_MASKED_VECTORS, self._packing.empty(), self._packing.record()
        sources = {node: sorted(self._near[node] & dealt.keys() - {node}) for node in dealt}
        forwarded = {
            node: {Key.SOURCE_LIST: others, Key.CIPHERTEXT_LIST: [dealt[other].texts[node] for other in others]}
            for node, others in sources.items()
        }
        work = {node: {**self._work[node], PACKING: packing} for node in dealt}
        masked = self._talk.ask(stage, forwarded, lambda node, content: _masked_in(content, like, sources[node]), work)
        unread = {(reader, writer) for reader, answer in masked.items() for writer in answer.unread}
        banned = to_blame(unread, masked.keys())
        for node in banned:
            self._talk.drop(masked, node, "it and its neighbours cannot read each other's shares")
        self._talk.answers |= {node: answer.token for node, answer in masked.items()}
        self._enough(dealt.keys() - banned, masked, f"after '{stage}'")
        return masked, banned

    def _disclosed(
        self, masked: Mapping[int, _Masked], lost: Set[int], owed: Mapping[int, list[int]]
    ) -> dict[int, _Disclosed]:
        """What opens the sum: shares of the masks of nodes that are there, and of the keys of those that are lost."""
        who = {
            node: {
                Key.ACTIVE_NODE_ID_LIST: list(self._near[node] & masked.keys()),
                Key.DEAD_NODE_ID_LIST: list(self._near[node] & lost),
                **({BANNED: owed[node]} if owed[node] else {}),
            }
            for node in masked
        }
        held = self._talk.ask(Stage.UNMASK, who, lambda node, content: _disclosed_in(content, owed[node]))
        self._enough([*masked, *lost], held, f"after '{Stage.UNMASK}'")
        return held

    def _enough(self, of: Iterable[int], left: Mapping[int, object], when: str) -> None:
        """End the round unless the secrets of some can still be opened by those that are left."""
        fewest = min((len(self._near[node] & left.keys()) for node in of), default=0)
        if fewest < self._threshold:
            raise EndedError(f"{fewest} of {self._shares} clients left {when}, expected {self._threshold}")

    def _secret(self, node: int, held: Mapping[int, _Disclosed], is_right: Callable[[bytes], bool]) -> bytes:
        """A node's secret, from the shares of it that its neighbours disclosed."""
        known = [held[other].shares[node] for other in self._near[node] & held.keys() if node in held[other].shares]
        if len(known) < self._threshold:
            raise EndedError(f"{len(known)} shares of a secret, expected {self._threshold}")
        secret = opened_secret(known, self._threshold, is_right)
        if secret is None:
            raise EndedError(f"the secret of node {node} cannot be opened; it is left out from now on", node)
        return secret


def neighbours(nodes: list[int], shares: int) -> dict[int, set[int]]:
    """Who shares secrets with whom: everybody, or on a ring of random order the nearest on both sides; and itself."""
    order = SystemRandom().sample(nodes, len(nodes))
    if shares >= len(order):
        return {node: set(order) for node in order}
    half = shares // 2
    return {
        node: {order[(at + offset) % len(order)] for offset in range(-half, half + 1)} for at, node in enumerate(order)
    }


def _keys_in(content: RecordDict) -> list[bytes]:
    config = content.config_records[CONFIG]
    found = [checked_key(config[name]) for name in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2)]
    if found[0] == found[1]:
        raise ValueError("expected two public keys, found the same one twice")
    return found


def _copies(keys: Mapping[int, Sequence[bytes]]) -> list[int]:
    """The nodes of which not all keys are their own: keys are new in every round, so they have agreed on them."""
    owners = Counter(key for pair in keys.values() for key in pair)
    return [node for node, pair in keys.items() if any(owners[key] > 1 for key in pair)]


def _dealt_in(content: RecordDict, expected: Set[int]) -> _Dealt:
    config = content.config_records[CONFIG]
    texts = _by_node(config[Key.DESTINATION_LIST], config[Key.CIPHERTEXT_LIST])
    if texts.keys() != expected:
        raise ValueError(f"expected shares for {len(expected)} neighbours, found {len(texts)}")
    found = config.get(COMMITMENT)
    if not (found is None or isinstance(found, bytes)):
        raise TypeError(f"commitment: expected bytes, found {type(found).__name__}")
    return _Dealt(texts, found)


def _masked_in(content: RecordDict, like: Mapping[str, Any], sources: Sequence[int]) -> _Masked:
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


def _disclosed_in(content: RecordDict, banned: Sequence[int]) -> _Disclosed:
    config = content.config_records[CONFIG]
    seeds = _by_node(banned, config[SEEDS]) if banned else {}
    return _Disclosed(_by_node(config[Key.NODE_ID_LIST], config[Key.SHARE_LIST]), seeds)


def _by_node(nodes: object, texts: object) -> dict[int, bytes]:
    """Two lists of a message as one dictionary."""
    if not (isinstance(nodes, list) and isinstance(texts, list) and all(isinstance(each, bytes) for each in texts)):
        raise TypeError("expected a list of nodes, and bytes for each")
    return dict(zip(nodes, texts, strict=True))


def to_blame(unread: Set[tuple[int, int]], present: Set[int]) -> set[int]:
    """Who is left out so that all the others can read each other; ``unread`` are pairs of a reader and a writer.

    Whoever is in most pairs goes first: one that writes nonsense to all, or says so of all. Where it is one word
    against another, the writer goes.
    """
    blamed = {writer for _, writer in unread if writer not in present}
    while left := [pair for pair in unread if not blamed & set(pair)]:
        pairs, written = Counter(node for pair in left for node in pair), Counter(writer for _, writer in left)
        blamed.add(max(pairs, key=lambda node: (pairs[node], written[node], node)))
    return blamed


def _seed(node: int, other: int, held: Mapping[int, _Disclosed]) -> bytes:
    """What a node has in common with another one that is left out."""
    if node not in held:
        raise EndedError(f"node {node} was lost, and with it what it has in common with node {other}")
    return held[node].seeds[other]
