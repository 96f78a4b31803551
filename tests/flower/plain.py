"""ClientApps that know nothing of fedpace, and what they would answer."""

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedpace.flower import InProcessGrid

EXAMPLES = (5, 20, 10, 1)


def arrays(**dtypes):
    """A model with BatchNorm's statistics between its parameters."""
    random = np.random.default_rng(0)
    found = {
        "w": random.normal(size=(3, 2)).astype(dtypes.get("w", "float32")),
        "bn.running_mean": random.normal(size=4).astype("float32"),
        "bn.num_batches_tracked": np.asarray(3),
        "b": random.normal(size=2).astype("float32"),
    }
    return ArrayRecord({name: Array(array) for name, array in found.items()})


def moved(record, client, number):
    """The arrays that a client answers with."""
    random = np.random.default_rng([client, number])
    found = {}
    for name, array in record.items():
        value = array.numpy()
        move = client if "tracked" in name else random.normal(size=value.shape)
        found[name] = Array(np.asarray(value + move).astype(value.dtype))
    return ArrayRecord(found)


def answer(message, client, record=None, **metrics):
    """A reply as Flower's examples give it."""
    config = message.content["config"]
    record = record or moved(message.content["arrays"], client, config["server-round"])
    metrics = MetricRecord({"num-examples": EXAMPLES[client], "loss": float(client), **metrics})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)


def app(spoil=None, bad=()):
    """Clients that move, of which the ``bad`` ones answer with what ``spoil`` makes of their reply."""
    found = ClientApp()

    @found.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        reply = answer(message, client)
        return spoil(reply) if client in bad else reply

    @found.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        metrics = MetricRecord({"num-examples": EXAMPLES[client], "accuracy": client / 4})
        reply = Message(RecordDict({"metrics": metrics}), reply_to=message)
        return spoil(reply) if client in bad else reply

    return found


def grid(client_app=None, nodes=4):
    return InProcessGrid(client_app or app(), nodes)


class Watched(InProcessGrid):
    """Remembers what was sent."""

    def __init__(self, client_app, nodes=4):
        super().__init__(client_app, nodes)
        self.sent = []

    def _answer(self, message):
        self.sent.append(message)
        return super()._answer(message)


def one_round(strategy, on: Grid, record=None, config=None, number=1, order=lambda replies: replies):
    """One round of training, as Flower's ``start`` does it."""
    messages = strategy.configure_train(number, arrays() if record is None else record, config or ConfigRecord(), on)
    replies = on.send_and_receive(messages)
    return strategy.aggregate_train(number, order(replies))


def vector(record):
    """The parameters of :func:`arrays` as a flat vector."""
    return torch.cat([torch.from_numpy(record[name].numpy().copy()).float().flatten() for name in ("w", "b")])


def updates(record=None, number=1, clients=range(4)):
    """The clients' updates of the parameters, in the order of the clients."""
    record = record or arrays()
    return torch.stack([vector(moved(record, client, number)) - vector(record) for client in clients])
