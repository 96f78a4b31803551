"""Client work on Flower's nodes: an execution of our engine whose workers are SuperNodes."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import ClassVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from pydantic import Field
from torch import Tensor, nn

from fedpace.core import Buffers, ClientError, Device, Layout, Update, one_line
from fedpace.data import Federation
from fedpace.engine import CLASSIFICATION, Execution, Executor, Turn, Worker
from fedpace.flower._replies import UNREADABLE, Replies, content_of, exchange, late_replies, why
from fedpace.flower._wire import answers_from, model_record, to_record, turns_record
from fedpace.flower.secure import SecureExchange, secure_update
from fedpace.server import Collected, Secure, Weighing
from fedpace.tasks import Task

log = logging.getLogger("fedpace")

WORK, WHO = "train.fedpace", "query.fedpace"  # message types that our ClientApp answers
NO_NODE = "no node answers for it"
LIFE = 2  # times as long as a node may take a message is good for: its reply may have to wait for its turn


class OnGrid(Executor):
    """Clients are Flower's nodes, reached by a ``grid``. See :class:`FlowerExecution`."""

    grid: Grid
    timeout: float = Field(600.0, gt=0)
    wait: float = Field(60.0, ge=0)
    secure: Secure | None = None

    on_this_machine: ClassVar[bool] = False

    def start(
        self,
        module: nn.Module,
        federation: Federation,
        layout: Layout | None = None,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Execution:
        """Wait for the nodes. Each has chosen its own ``device``; the server aggregates on the host."""
        local = Worker(copy.deepcopy(module), federation, layout, task)
        return FlowerExecution(self.grid, len(federation), local, self.timeout, self.wait, self.secure)


class FlowerExecution(Execution):
    """Sends each client's turns to the node that holds its data, one message per client, and waits for the answers.

    Nodes have random ids, so each is asked which client it is. ``local`` does what needs no client (the common test
    set). A node that does not answer within ``timeout`` seconds is a client that failed; it is waited for again when it
    has said once more which client it is, so that it costs this time once and not in every round. With ``secure``,
    updates are summed before this server can read them.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        local: Worker,
        timeout: float = 600.0,
        wait: float = 60.0,
        secure: Secure | None = None,
    ) -> None:
        self._grid, self._clients, self._local, self._timeout = grid, clients, local, timeout
        self.secure = secure
        self._exchange = SecureExchange(grid, secure or Secure(), timeout)
        self._nodes: dict[int, int] = {}  # client → node
        self._left_out: set[int] = set()  # nodes of no client, and second ones of a client
        self._silent: dict[int, str] = {}  # node → the message that it has yet to answer before we count on it
        self._wait_for_nodes(wait)

    def run(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor] | None = None
    ) -> Iterator[Update]:
        """Send, wait, and yield the answers in the order of the turns, each read when its turn comes."""
        extras, asked = extras or {}, dict[int, list[Turn]]()
        for turn in turns:
            if turn.client >= 0:
                asked.setdefault(turn.client, []).append(turn)
        left = {client: len(its_turns) for client, its_turns in asked.items()}
        heard = self._ask(asked, vector, buffers, extras) if asked else {}
        for turn in turns:
            if turn.client < 0:
                yield self._local.answer(turn, vector, buffers, extras)
                continue
            left[turn.client] -= 1  # after the last one, its reply is let go
            answers = heard[turn.client] if left[turn.client] else heard.pop(turn.client)
            yield next(answers)

    def sums(
        self, turns: Sequence[Turn], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor], weighing: Weighing
    ) -> Collected:
        """Let nodes sum what they answer, and open the sum."""
        self._learn_nodes()
        model, common = model_record(vector, buffers), to_record(extras)
        nodes = {turn.client: self._nodes[turn.client] for turn in turns if turn.client in self._nodes}
        work = {nodes[turn.client]: turns_record(model, common, [turn]) for turn in turns if turn.client in nodes}
        found = self._exchange.run(work, len(vector), buffers, weighing)
        self._doubt(found.silent)
        answers = {client: found.answers.get(node) for client, node in nodes.items()}
        clients = [secure_update(turn.client, answers.get(turn.client, NO_NODE)) for turn in turns]
        if found.opened is None:
            return Collected(clients, ended=found.ended)
        return Collected(clients, **vars(found.opened), numbers=found.extra_numbers)

    def close(self) -> None:
        """Nodes outlive a run: nothing to stop."""

    def _ask(
        self, asked: Mapping[int, list[Turn]], vector: Tensor, buffers: Buffers, extras: Mapping[str, Tensor]
    ) -> dict[int, Iterator[Update]]:
        """Send each client its turns; what it will answer."""
        self._learn_nodes()
        model, common = model_record(vector, buffers), to_record(extras)
        nodes = {client: self._nodes[client] for client in asked if client in self._nodes}
        messages = {
            node: Message(turns_record(model, common, asked[client]), node, WORK, ttl=LIFE * self._timeout)
            for client, node in nodes.items()
        }
        largest = max(sum(_bytes_of(turn, len(vector)) for turn in turns) for turns in asked.values())
        replies = Replies(self._grid, messages, self._timeout, largest)
        reached = {client: node for client, node in nodes.items() if node in replies.awaited}
        return {
            client: self._answers(turns, reached.get(client), replies, len(vector), extras)
            for client, turns in asked.items()
        }

    def _answers(
        self, turns: Sequence[Turn], node: int | None, replies: Replies, size: int, extras: Mapping[str, Tensor]
    ) -> Iterator[Update]:
        """A client's answers to its turns. Its reply is waited for when the first one is asked for."""
        reply, failure = None if node is None else replies.of(node), NO_NODE
        if node is not None and reply is None:
            failure = f"no answer within {self._timeout:g} s"
            self._doubt([node])
        elif reply is not None and reply.has_error():
            failure = f"its node failed: {one_line(reply.error.reason or '')}"
        elif reply is not None:
            try:
                yield from answers_from(reply.content, turns, size, extras)
                return
            except UNREADABLE as error:
                failure = f"its answer cannot be read ({type(error).__name__}: {why(error)})"
        for turn in turns:  # one more than is asked for, where some could be read: nobody takes it
            yield Update(turn.client, failure=failure)

    def _wait_for_nodes(self, seconds: float) -> None:
        """Until every client has a node; what is missing after ``seconds`` is left out, but not everything may be."""
        end = monotonic() + seconds
        while len(self._nodes) < self._clients and (monotonic() < end or not self._nodes):
            self._learn_nodes()
            if monotonic() >= end and not self._nodes:
                raise ClientError(f"no node of any client is connected after {seconds:g} s")
            if len(self._nodes) < self._clients:
                sleep(0.2)
        missing = sorted(set(range(self._clients)) - set(self._nodes))
        if missing:
            log.warning("clients without a node: %s; they are left out until one connects", missing)

    def _learn_nodes(self) -> None:
        """Ask the nodes that we do not know yet which client they are, and forget those that are gone."""
        connected = set(self._grid.get_node_ids())
        if not connected.issuperset(self._nodes.values()):
            self._left_out.clear()  # one of them may take the place of a node that is gone
        self._nodes = {client: node for client, node in self._nodes.items() if node in connected}
        self._silent = {node: message for node, message in self._silent.items() if node in connected}
        unknown = connected - self._left_out - set(self._nodes.values())
        asked = {node: self._question(node) for node in sorted(unknown - self._silent.keys())}
        replies = exchange(self._grid, asked, self._timeout) | late_replies(self._grid, self._silent)
        for node, reply in replies.items():
            self._silent.pop(node, None)
            self._learn(node, reply)
        self._doubt(asked.keys() - replies.keys())

    def _learn(self, node: int, reply: Message) -> None:
        try:
            client = content_of(reply).config_records["config"]["client"]
            if not isinstance(client, int):
                raise TypeError(f"expected its number, found {type(client).__name__}")
        except UNREADABLE as error:
            log.warning("node %d does not say which client it is: %s", node, why(error))
            return
        if not 0 <= client < self._clients:
            log.warning("a node is client %d of %d: left out", client, self._clients)
            self._left_out.add(node)
        elif self._nodes.setdefault(client, node) != node:
            log.warning("two nodes are client %d: the second one is left out", client)
            self._left_out.add(node)

    def _doubt(self, nodes: Collection[int]) -> None:
        """Do not wait for these silent nodes again before they have answered a question without a time limit."""
        self._nodes = {client: node for client, node in self._nodes.items() if node not in nodes}
        for node in sorted(nodes):
            log.warning("node %d: no answer within %g s; left out until it answers", node, self._timeout)
            (sent,) = self._grid.push_messages([self._question(node)]) or (None,)
            if sent:  # Flower refuses a message to a node that is gone
                self._silent[node] = sent

    def _question(self, node: int) -> Message:
        return Message(RecordDict({"config": ConfigRecord({"clients": self._clients})}), node, WHO)


def _bytes_of(turn: Turn, size: int) -> int:
    """How many bytes the answer to a turn has at most, but for what a method sends along."""
    return 4 * size if turn.wire is None else turn.wire.bytes_for(size)
