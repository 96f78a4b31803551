"""FedROD against a loop with two optimizers, and what its two losses promise."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedpace.core import ModelError
from fedpace.data import load
from fedpace.methods import FedROD, LocalSGD, methods
from tests.client.helpers import Bench, normed, shard, statistics

from .bench import STEPS, Client, noise


def labelled(*labels):
    """A client with examples of these classes, in a world of three."""
    inputs = noise(torch.zeros(len(labels) + 3, 5), scale=1.0, seed=2)
    data = load((inputs, torch.tensor([*labels, 0, 1, 2])), test=(inputs[:3], torch.arange(3)))
    whole = data.partition("iid", clients=1).clients[0]
    return replace(whole, indices=np.arange(len(labels)))


def by_hand(client, own, batches, counts):
    """PFLlib's loop: base and generic head step first, then the personal head, on what was seen before that step."""
    module, own = copy.deepcopy(client.module.model).train(), copy.deepcopy(own)
    first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (module, own))
    losses = []
    for inputs, labels in batches:
        features = module[:-1](inputs)
        generic = module[-1](features)
        balanced = F.cross_entropy(generic + counts.log(), labels)
        first.zero_grad()
        balanced.backward()
        first.step()
        personal = F.cross_entropy(generic.detach() + own(features.detach()), labels)
        second.zero_grad()
        personal.backward()
        second.step()
        losses.append(float(balanced.detach() + personal.detach()))
    return module, own, sum(losses) / len(losses)


def test_it_is_a_loop_with_two_optimizers():
    client = Client(FedROD(**STEPS))
    client.state = {"personal": client.state["personal"] + noise(client.state["personal"])}
    own = copy.deepcopy(client.module.personal)
    nn.utils.vector_to_parameters(client.state["personal"], own.parameters())
    batches = list(client.method.batches(client.training, client.context()))
    counts = torch.from_numpy(client.training.class_counts()).float()
    module, own, loss = by_hand(client, own, batches, counts)
    update = client.turn()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(client.vector + update.vector, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(client.state["personal"], nn.utils.parameters_to_vector(own.parameters()).detach())
    torch.testing.assert_close(update.buffers.floats, statistics(module)[0])
    assert update.metrics["loss"] == pytest.approx(loss)


def test_it_answers_with_both_heads():
    client, inputs = Client(FedROD(**STEPS)), noise(torch.zeros(9, 5), scale=1.0)
    update = client.turn()
    client.vector += update.vector
    found = client.scores(inputs)
    module = copy.deepcopy(client.module.model).eval()
    nn.utils.vector_to_parameters(client.vector, module.parameters())
    features = module[:-1](inputs)  # with the statistics of the client before training, which is what it is given
    weight, bias = client.state["personal"].split([18, 3])
    expected = module[-1](features) + features @ weight.view(3, 6).T + bias
    torch.testing.assert_close(found, expected.detach())


def test_what_is_shared_feels_nothing_of_the_personal_head():
    one, two = Client(FedROD(**STEPS)), Client(FedROD(**STEPS))
    two.state = {"personal": two.state["personal"] + 5}
    first, second = one.turn(), two.turn()
    assert torch.equal(first.vector, second.vector)
    assert not torch.equal(first.state["personal"], second.state["personal"])


def test_the_generic_head_alone_is_the_global_model():
    client, inputs = Client(FedROD(**STEPS)), noise(torch.zeros(9, 5), scale=1.0)
    assert torch.equal(client.module.eval()(inputs), client.module.model.eval()(inputs))


def test_with_equal_counts_the_balanced_loss_is_cross_entropy():
    training = labelled(*[0, 1, 2] * 10)
    update = Client(FedROD(**STEPS), training=training).turn()
    torch.testing.assert_close(update.vector, Bench(normed()).run(LocalSGD(**STEPS), training).vector)


def test_a_class_that_the_client_lacks_plays_no_part_in_the_generic_head():
    update = Client(FedROD(**STEPS), training=labelled(*[0, 2] * 10)).turn()
    head = dict(Client(FedROD(**STEPS)).layout.shared.tensors(update.vector))
    for name in ("model.3.weight", "model.3.bias"):
        assert not head[name][1].any()
        assert head[name][[0, 2]].any(-1).all()


def test_a_class_that_most_orders_leave_out_is_counted():
    """Nine examples in batches of eight: the one of class 2 is in some passes and not in others."""
    client = Client(FedROD(**STEPS), training=labelled(*[0, 1] * 4, 2))
    seen = set()
    for seed in range(20):
        seen |= {int((labels == 2).sum()) for _, labels in client.method.batches(client.training, client.context(seed))}
        update = client.turn(seed)
        assert torch.isfinite(update.vector).all()
        assert update.metrics["loss"] < 20
    assert seen == {0, 1}


class Bilinear(nn.Module):
    """A head that is not linear."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 4), nn.Bilinear(4, 4, 3)

    def forward(self, inputs):
        features = self.layer(inputs)
        return self.head(features, features)


@pytest.mark.parametrize("name", ["fedrod", "fedcp", "fedpac"])
def test_a_head_that_is_not_linear_is_refused_in_one_line(name):
    message = r"^model 'Bilinear': expected a torch.nn.Linear as its head, .*, found a Bilinear \(head\)$"
    with pytest.raises(ModelError, match=message):
        Client(methods.get(name)(**STEPS), Bilinear(), shard())
