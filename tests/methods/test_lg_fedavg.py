"""LG-FedAvg is local training of which only the head is sent."""

import torch

from fedpace.methods import LGFedAvg, LocalSGD
from tests.client.helpers import Bench, normed

from .bench import STEPS, Client, noise


def test_a_turn_is_local_training_bitwise():
    client, plain = Client(LGFedAvg(**STEPS)), Bench(normed())
    update, trained = client.turn(), plain.run(LocalSGD(**STEPS), client.training)
    assert torch.equal(update.vector, client.layout.take_shared(trained.vector))
    assert torch.equal(update.state["personal"], client.layout.take(plain.model.vector, client.layout.own))
    assert torch.equal(update.buffers.floats, trained.buffers.floats)


def test_only_the_head_is_sent_and_the_base_is_kept():
    client = Client(LGFedAvg(**STEPS))
    assert client.layout.shared.names == ("3.weight", "3.bias")
    kept = client.turn().state["personal"]
    client.vector = client.vector + noise(client.vector)
    client.scores(torch.zeros(1, 5))
    assert torch.equal(client.layout.take(client.model.vector, client.layout.own), kept)
    assert torch.equal(client.layout.take_shared(client.model.vector), client.vector)


def test_of_a_model_that_is_all_head_everything_is_shared():
    client = Client(LGFedAvg(**STEPS), torch.nn.Linear(5, 3))
    assert not client.layout.personal
    assert client.turn().state is None
