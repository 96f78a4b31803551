"""Our methods against vectors that PFLlib's loops lead to, as ``record_pfllib`` writes them down anew."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from fedpace.aggregation import Mean
from fedpace.core import derive
from fedpace.data import load
from fedpace.methods import Personal, methods

from . import record_pfllib as pfllib
from .bench import Client

RECORDED = {name: t.long() if t.dtype == torch.uint8 else t for name, t in load_file(pfllib.FILE).items()}
SIZES = torch.tensor(pfllib.SIZES, dtype=torch.float64)
SETTINGS = {  # beside those that all have; where we have a switch, it is PFLlib's way
    "fedavg": {"name": "sgd"},
    "proximal": {"mu": pfllib.MU},
    "scaffold": {"option": "II"},
    "per_fedavg": {"passes": 2},
    "apfl": {"variant": "pfllib", "alpha": pfllib.ALPHA},
    "fedrep": {"head_epochs": 1},
    "fedcp": {"lam": pfllib.LAM},
    "fedala": {"eta": 1.0, "layer_idx": 2, "threshold": 0.1, "share": pfllib.SHARE},
    "fedpac": {"lam": pfllib.LAM, "head_epochs": 1, "prototype_weights": "uniform"},
}


def method_on_recorded_batches(name):
    """The method, with batches from the file: by client, and by the names from which the seeds of phases derive."""
    settings = {"name": name, **SETTINGS.get(name, {})}
    chosen = methods.get(settings.pop("name"))

    class Recorded(chosen):
        def batches(self, shard, context, *, epochs=None, batch=None, rng=None):
            number, phase = next(
                (number, phase)
                for number in range(pfllib.ROUNDS + 1)
                for phase in ("train", "head", "ala")
                if context.seed == (number if phase == "train" else derive(number, phase))
            )
            examples = context.training
            order = RECORDED[f"order.{context.client}.{number}.{phase}"][: (epochs or self.epochs) * len(examples)]
            return map(examples.batch, order.split(batch or self.batch))

    plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "max_steps": None}
    return Recorded(**plain, lr=pfllib.LR, batch=pfllib.BATCH, epochs=pfllib.EPOCHS, **settings)


def shards():
    inputs, labels = (torch.cat([RECORDED[f"{kind}.{i}"] for i in pfllib.CLIENTS]) for kind in ("inputs", "labels"))
    whole = load((inputs, labels), test=(inputs, labels)).partition("iid", clients=1).clients[0]
    return [replace(whole, indices=part) for part in np.split(np.arange(len(labels)), [pfllib.SIZES[0]])]


def model():
    found = nn.Sequential(nn.Linear(pfllib.FEATURES, pfllib.WIDTH), nn.ReLU(), nn.Linear(pfllib.WIDTH, pfllib.CLASSES))
    for i, parameter in enumerate(found.parameters()):
        parameter.data.copy_(RECORDED[f"start.{i}"])
    return found


class Numbered(Client):
    """A client of the bench that knows its number."""

    def __init__(self, number, method, training):
        super().__init__(method, model(), training)
        self.number = number

    def context(self, seed=7):
        return replace(super().context(seed), client=self.number)


def our_rounds(name):
    """What the file has of a method, from ours."""
    method = method_on_recorded_batches(name)
    clients = [Numbered(i, method, shard) for i, shard in enumerate(shards())]
    vector, server_side = clients[0].vector, method.server_side(clients[0].layout, len(clients))
    if name == "fedcp":  # its policy comes first
        policy = torch.cat([RECORDED[f"policy.{i}"].flatten() for i in range(4)])
        vector[: len(policy)] = policy
    found = {}

    def send(client):
        client.vector = vector
        client.extras = {**server_side.sends(), **server_side.sends_to(client.number)} if server_side else {}

    for number in range(pfllib.ROUNDS):
        updates = []
        for client in clients:
            send(client)
            updates.append(client.turn(seed=number))
        for update in updates if server_side else []:
            server_side.learn(update)
        if server_side:
            server_side.finish()
        rows, weights = torch.stack([update.vector for update in updates]), None if name == "scaffold" else SIZES
        vector = vector + Mean()(rows, weights)
        found[f"shared.{number}"] = vector
    for client in clients:
        send(client)
        kept = {**client.state, "head": client.extras.get("head")}
        if isinstance(method, Personal):
            kept["scores"] = client.scores(RECORDED["test"], seed=pfllib.ROUNDS)
        found |= {f"{key}.{client.number}": tensor for key, tensor in kept.items()}
    sent = server_side.sends() if server_side else {}
    return {**found, "prototypes": sent.get("prototypes"), "common": sent.get("control")}


def recorded_noise(monkeypatch):
    """FedCP's, for every round, client and batch."""
    keys = [f"noise.{client}.{number}" for number in range(pfllib.ROUNDS) for client in pfllib.CLIENTS]
    noise = iter([batch for key in keys for batch in RECORDED[key]])
    monkeypatch.setattr(F, "gumbel_softmax", lambda pairs, dim: (pairs + next(noise)).softmax(dim))


@pytest.mark.parametrize("name", [method.__name__ for method in pfllib.METHODS])
def test_it_is_where_pfllibs_loops_lead(monkeypatch, name):
    recorded_noise(monkeypatch)
    ours = our_rounds(name)
    theirs = {key.removeprefix(f"{name}."): t for key, t in RECORDED.items() if key.startswith(f"{name}.")}
    assert len(theirs) >= pfllib.ROUNDS
    for key, expected in theirs.items():
        torch.testing.assert_close(ours[key].to(expected.dtype), expected, atol=1e-5, rtol=1e-5, msg=key)


def test_training_changed_what_is_compared():
    """Agreement would mean little if the vectors had stayed where they began, or α and W at their bounds."""
    for method in pfllib.METHODS:
        first, last = (RECORDED[f"{method.__name__}.shared.{number}"] for number in (0, pfllib.ROUNDS - 1))
        assert float((last - first).abs().max()) > 0.05, method.__name__
    for client in pfllib.CLIENTS:
        assert 0.05 < abs(float(RECORDED[f"apfl.alpha.{client}"]) - pfllib.ALPHA) < 0.35
        weights = RECORDED[f"fedala.W.{client}"]
        assert int(((weights > 0.01) & (weights < 0.99)).sum()) > 5


def test_the_file_is_what_the_script_writes():
    fresh = pfllib.recorded()
    assert fresh.keys() == RECORDED.keys()
    for name, tensor in fresh.items():
        torch.testing.assert_close(tensor.to(RECORDED[name].dtype), RECORDED[name], atol=1e-6, rtol=1e-5, msg=name)
