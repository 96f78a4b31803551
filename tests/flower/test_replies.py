"""Of the replies of a round few are held at once, whoever answers first and whoever does not answer."""

import gc
import weakref
from itertools import count

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpace.experiments.engines import node_of
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute
from fedpace.flower import InProcessGrid, OnGrid, _replies, client_app
from fedpace.flower._replies import Replies
from fedpace.flower.execution import WHO, WORK
from fedpace.wire import Int8
from tests.records import untimed

NODES, AHEAD = 30, 8
SIZE = 100  # bytes of a reply


class Patchy(Grid):
    """A grid that nodes need some time to answer: it is asked ``late[node]`` times before it has a node's reply."""

    def __init__(self, inner, late, gone):
        self._inner, self.late, self.gone = inner, late, gone
        self.replies = weakref.WeakSet()
        self.most, self.looks, self.lives = 0, count(), []
        self._asked = {}

    run = property(lambda self: self._inner.run)

    def set_run(self, run):
        self._inner.set_run(run)

    def create_message(self, *args, **options):
        raise NotImplementedError

    def get_node_ids(self):
        return self._inner.get_node_ids()

    def push_messages(self, messages):
        messages = list(messages)
        self.lives += [message.metadata.ttl for message in messages if message.metadata.message_type == WORK]
        names = self._inner.push_messages(messages)
        nodes = [message.metadata.dst_node_id for message in messages]
        self._asked |= {name: [node, self.late.get(node, 0)] for name, node in zip(names, nodes, strict=True)}
        return [None if node in self.gone else name for name, node in zip(names, nodes, strict=True)]

    def pull_messages(self, message_ids):
        next(self.looks)
        names = list(message_ids)
        for name in names:
            self._asked[name][1] -= 1
        replies = self._inner.pull_messages([name for name in names if self._asked[name][1] < 0])
        self.replies.update(replies)
        self.most = max(self.most, len(self.replies))
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        return self._inner.send_and_receive(messages, timeout=timeout)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(_replies, "SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(_replies, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(_replies, "AHEAD", AHEAD * SIZE)


def ask(grid):
    content = RecordDict({"config": ConfigRecord({"clients": NODES})})
    return {node: Message(content, node, WHO) for node in sorted(grid.get_node_ids())}


def who(reply):
    return reply.content["config"]["client"]


def of_all(grid, timeout=60.0):
    messages = ask(grid)
    replies = Replies(grid, messages, timeout, SIZE)
    return [reply and who(reply) for reply in map(replies.of, messages)]


def patchy(late=(), gone=()):
    """Such a grid, whose nodes are late or gone by their places, and the clients in the order of their nodes."""
    inner = InProcessGrid(client_app(lambda context: None), NODES)
    clients = {node: context.node_config["partition-id"] for node, context in sorted(inner.contexts.items())}
    nodes = list(clients)
    looks = {nodes[at]: number for at, number in dict(late).items()}
    return Patchy(inner, looks, [nodes[at] for at in gone]), list(clients.values())


@pytest.mark.parametrize("late", [{}, {0: 50}, {at: NODES - at for at in range(NODES)}, {3: 5, 4: 1, 20: 100}])
def test_replies_come_in_the_order_of_the_messages_and_few_are_held(late):
    grid, clients = patchy(late=late)
    assert of_all(grid) == clients
    gc.collect()
    assert grid.most <= AHEAD + 1
    assert not grid.replies


def test_a_silent_node_costs_its_own_reply_alone():
    grid, clients = patchy(late={4: 10**9})
    assert of_all(grid, timeout=0.2) == [None if at == 4 else client for at, client in enumerate(clients)]
    assert grid.most <= AHEAD + 1


def test_nobody_waits_for_a_node_that_is_gone():
    grid, clients = patchy(gone=[2])
    assert of_all(grid) == [None if at == 2 else client for at, client in enumerate(clients)]
    assert next(grid.looks) < 2 * NODES


def test_an_in_process_grid_that_is_silent_is_not_waited_for():
    class Silent(InProcessGrid):
        def replies(self, message):
            return []

    assert of_all(Silent(client_app(lambda context: None), NODES), timeout=1e9) == [None] * NODES


@pytest.mark.parametrize("rule", ["mean", "masked"])
def test_a_round_holds_few_replies_and_is_that_of_the_local_engine(rule, monkeypatch):
    """Nodes answer in any order, and the last clients first."""
    monkeypatch.setattr(_replies, "AHEAD", AHEAD * Int8().bytes_for(650) + 1)
    settings = {"data.source": "digits", "data.partition": {"name": "iid", "clients": NODES}, "model": "linear"}
    settings |= {"rounds": 2, "local.max_steps": 1, "measuring.per_client": 0, "executor": "serial", "wire": "int8"}
    chosen = load_config("fedavg", {**settings, "aggregate.rule": rule, "measuring.pairwise": 0})
    inner = InProcessGrid(client_app(lambda context: node_of(chosen)), NODES)
    late = {node: NODES - context.node_config["partition-id"] for node, context in inner.contexts.items()}
    grid = Patchy(inner, late, ())
    result, local = execute(chosen, executor=OnGrid(grid=grid)), execute(chosen)
    assert untimed(result.records) == untimed(local.records)
    assert all(record.used == NODES for record in result.records)
    assert 1 < grid.most <= AHEAD + 1
    assert min(grid.lives) >= 2 * OnGrid(grid=grid).timeout  # a reply that waits for its turn must not expire
