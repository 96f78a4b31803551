"""Per-FedAvg against a loop written by hand."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fedpace.client import Gradient
from fedpace.methods import LocalSGD, PerFedAvg
from tests.client.helpers import Bench, flat, normed, plain, shards, statistics

from .bench import STEPS, Client, sgd, watched


def by_hand(module, batch, alpha, beta):
    """As PFLlib: go to φ, take the gradient there, come back, step."""
    half = len(batch[1]) // 2
    before = copy.deepcopy(module.state_dict())
    sgd(module, (batch[0][:half], batch[1][:half]), alpha)
    loss = F.cross_entropy(module(batch[0][half:]), batch[1][half:])
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    with torch.no_grad():
        for (name, parameter), gradient in zip(module.named_parameters(), gradients, strict=True):
            parameter.copy_(before[name] - beta * gradient)


@pytest.mark.parametrize(("alpha", "rate"), [(0.3, 0.3), (None, 0.1)])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_is_taken_from_here_along_the_gradient_after_another(alpha, rate, passes):
    """40 examples are five batches of 8 but only two pairs; the statistics have seen both halves of each."""
    method, seen = watched(PerFedAvg, **STEPS, alpha=alpha, passes=passes)
    client = Client(method)
    update, module = client.turn(), copy.deepcopy(client.module)
    assert [len(labels) for _, labels in seen] == [16] * 2 * passes
    for batch in seen:
        by_hand(module, batch, rate, beta=0.1)
    torch.testing.assert_close(client.vector + update.vector, flat(module))
    torch.testing.assert_close(update.buffers.floats, statistics(module)[0])
    assert update.state is None


def test_two_passes_are_the_default_and_twice_the_epochs():
    def vector(**changes):
        return Client(PerFedAvg(**{**STEPS, **changes})).turn().vector

    assert torch.equal(vector(), vector(passes=1, epochs=2))
    assert not torch.equal(vector(), vector(passes=1))


def test_without_the_first_step_it_is_local_training():
    """In the limit of a small α, on the second half of each batch."""
    client, own = Client(PerFedAvg(**STEPS, alpha=1e-12, passes=1), plain()), shards(1, 9)[0]
    client.training = own  # both halves are its one example
    trained = Bench(plain()).run(LocalSGD(**STEPS), own)
    torch.testing.assert_close(client.turn().vector, trained.vector)


@pytest.mark.parametrize("size", [3, 9, 15])
def test_a_client_with_less_than_two_batches_trains_too(size):
    assert bool(Client(PerFedAvg(**STEPS), training=shards(size, 9)[0]).turn().vector.any())


def test_an_answer_is_given_after_one_step_on_training_examples_with_the_statistics_of_before():
    client = Client(PerFedAvg(**STEPS, alpha=0.3))
    client.buffers = client.turn().buffers
    client.vector += 0.01
    inputs, vector = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), client.vector.clone()
    scores = client.scores(inputs)
    assert torch.equal(client.model.buffers.floats, client.buffers.floats)
    assert torch.equal(client.vector, vector)

    bench = Bench(normed())
    bench.vector, bench.buffers = client.vector, client.buffers
    gradient = -bench.run(Gradient(batch=8, max_steps=1), client.training).vector  # at the batch of the same seed
    bench.model.load(client.vector - 0.3 * gradient, client.buffers)
    torch.testing.assert_close(scores, bench.model.module.eval()(inputs).detach())
    assert not torch.equal(scores, client.scores(inputs, seed=8))  # another batch
