"""Asking clients, and reading what they answered.

Somebody else wrote the answers: they may hold anything. Whatever goes wrong while one is read is the reason to drop its
client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, islice
from math import inf, isfinite
from time import monotonic, sleep
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedpace.core import one_line
from fedpace.flower._options import Metrics
from fedpace.flower.inprocess import InProcessGrid
from fedpace.server.guard import LARGEST

log = logging.getLogger("fedpace")

PROBE = "train.probe"  # the type of message that @app.train("probe") answers
SEND, PARAMETERS, PROBES = "fedpace-send", "fedpace-parameters", "fedpace-probe"  # keys of a message's ConfigRecord
GRADIENT, PACE, VECTORS = "gradient", "pace", "vectors"  # names of ArrayRecords, and of the array of probed vectors
EXAMPLES = "num-examples"

UNREADABLE = Exception  # what reading somebody's records may raise: no list of errors was ever complete

AHEAD = 2**28  # bytes of replies that may be here before their turn
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks for replies

MOST_EXAMPLES = 10**12  # with values up to the guard's, a sum of a million answers is far from the end of float32


def why(error: Exception) -> str:
    """The reason to drop a client, for one line of a log."""
    return one_line(error)[:200]


def node(reply: Message) -> int:
    """Who answered."""
    return reply.metadata.src_node_id


def exchange(grid: Grid, messages: Mapping[int, Message], timeout: float) -> dict[int, Message]:
    """Send each node its message, and wait; the replies by node. For a node that is gone, Flower itself replies."""
    replies = list(grid.send_and_receive(messages.values(), timeout=timeout)) if messages else []
    return _by_node(replies, {node: message.metadata.message_id for node, message in messages.items()})


class Replies:
    """The replies to messages that were sent together, asked for in the order of the messages.

    Who adds updates up in a fixed order has nothing to do with a reply before its turn comes. Of the replies that are
    there, the next ones are fetched all the same, because Flower forgets that of a node that is gone: as many as fit
    into ``AHEAD``. All others wait at the SuperLink, however many they are, and not in the memory of this process.
    """

    def __init__(self, grid: Grid, messages: Mapping[int, Message], timeout: float, size: int) -> None:
        """Send the messages. A reply has about ``size`` bytes. An in-process grid answers at once or never does."""
        self._ahead = AHEAD // max(size, 1)
        accepted = set(grid.push_messages(list(messages.values()))) if messages else set()
        self._grid, self._found = grid, dict[int, Message]()
        self._end = monotonic() + (0.0 if isinstance(grid, InProcessGrid) else timeout)
        names = {node: message.metadata.message_id for node, message in messages.items()}
        self._waiting = {node: name for node, name in names.items() if name in accepted}

    @property
    def awaited(self) -> Set[int]:
        """The nodes whose replies are still to come; Flower takes no message to a node that is gone."""
        return self._waiting.keys()

    def of(self, node: int) -> Message | None:
        """A node's reply, each once; nothing if it does not come in time."""
        pause = SHORTEST_PAUSE
        while node in self._waiting:
            late = monotonic() >= self._end
            if self._fetch(node):
                pause = SHORTEST_PAUSE
            elif late:
                del self._waiting[node]
            else:
                sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return self._found.pop(node, None)

    def _fetch(self, node: int) -> bool:
        """Fetch this node's reply and those of the next ones, as far as they are there; whether any was."""
        next_ones = islice(self._waiting, max(self._ahead - len(self._found), 0))
        found = late_replies(self._grid, {each: self._waiting[each] for each in {node, *next_ones}})
        for each in found:
            del self._waiting[each]
        self._found |= found
        return bool(found)


def late_replies(grid: Grid, sent: Mapping[int, str]) -> dict[int, Message]:
    """What has come so far in reply to messages that nobody waits for, of which we have the ids by node."""
    return _by_node(grid.pull_messages(list(sent.values())) if sent else (), sent)


def _by_node(replies: Iterable[Message], sent: Mapping[int, str]) -> dict[int, Message]:
    """Each node's reply to what it was sent: the first one, if it repeats itself."""
    asked, found = {message: node for node, message in sent.items()}, dict[int, Message]()
    for reply in replies:
        who = asked.get(reply.metadata.reply_to_message_id)
        if who is not None:
            found.setdefault(who, reply)
    return found


def content_of(reply: Message | None) -> RecordDict:
    """What a reply holds, if there is one and it is no error."""
    if reply is None:
        raise ValueError("no answer")
    if reply.has_error():
        raise ValueError(f"its node failed: {reply.error.reason}")
    return reply.content


def metrics_of(content: RecordDict) -> MetricRecord:
    """The only MetricRecord; its numbers fit into floats."""
    if len(content.metric_records) != 1:
        raise ValueError(f"expected one MetricRecord, found {len(content.metric_records)}")
    record = next(iter(content.metric_records.values()))
    for number in chain.from_iterable(value if isinstance(value, list) else [value] for value in record.values()):
        float(number)
    return record


def arrays_of(content: RecordDict, name: str | None = None) -> ArrayRecord:
    """The only ArrayRecord, which may have to have a name."""
    if len(content.array_records) != 1:
        raise ValueError(f"expected one ArrayRecord, found {len(content.array_records)}")
    found, record = next(iter(content.array_records.items()))
    if name is not None and found != name:
        raise ValueError(f"expected an ArrayRecord '{name}', found '{found}'")
    return record


def examples_of(content: RecordDict, key: str) -> int:
    """A client's weight, usually its number of examples (Flower allows any number)."""
    value = metrics_of(content).get(key)
    if not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{key}: expected a number above 0, found {value}")
    if value > MOST_EXAMPLES:
        raise ValueError(f"{key}: expected at most {MOST_EXAMPLES:g}, found {value:g}")
    return value  # type: ignore[return-value]  # a float counts as well


def refuse_large(values: Tensor) -> None:
    """Values that are finite, but whose sum may not be. (Those that are not finite are the guard's to judge.)"""
    extremes = [abs(float(extreme)) for extreme in values.aminmax()] if values.numel() else []
    if values.is_floating_point() and any(LARGEST < extreme < inf for extreme in extremes):
        raise ValueError(f"expected values of at most {LARGEST:g}, found {max(extremes):.3g}")


def averaged(contents: Sequence[RecordDict], key: str, aggregate: Metrics) -> MetricRecord:
    """The clients' metrics as Flower aggregates them: those that most clients sent, of the clients that sent them all.

    What is not finite was not sent: one client would spoil the mean of all.
    """
    if not contents:
        return MetricRecord()
    records = [metrics_of(content) for content in contents]
    sent = [{(name, _length(value)) for name, value in record.items() if _is_finite(value)} for record in records]
    counts = Counter(chain.from_iterable(sent))
    usual = {kind for kind, count in counts.items() if 2 * count > len(records)}
    if all(kinds == usual for kinds in sent) and all(len(record) == len(usual) for record in records):
        return aggregate(list(contents), key)
    names = sorted(name for name, _ in usual)
    kept = [record for record, kinds in zip(records, sent, strict=True) if kinds >= usual]
    log.warning(
        "clients sent different metrics: only %s are averaged, of %d of %d clients",
        ", ".join(name for name in names if name != key) or "none",
        len(kept),
        len(records),
    )
    reduced = [RecordDict({"metrics": MetricRecord({name: record[name] for name in names})}) for record in kept]
    return aggregate(reduced, key) if reduced else MetricRecord()


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, list) else None


def _is_finite(value: Any) -> bool:
    return all(map(isfinite, value if isinstance(value, list) else [value]))


def in_order(replies: Iterable[Message], nodes: Iterable[int]) -> list[tuple[int, Message | None]]:
    """Each node's first reply, in the order of their ids; a silent node has none."""
    by_node = first_by_node(replies)
    return [(client, by_node.get(client)) for client in sorted(nodes)]


def first_by_node(replies: Iterable[Message]) -> dict[int, Message]:
    """Each node's first reply: one that repeats itself counts once."""
    found = dict[int, Message]()
    for reply in replies:
        found.setdefault(node(reply), reply)
    return found
