"""FedRep against a loop written by hand."""

import copy

import pytest
import torch
from torch import nn

from fedpace.core import ModelError
from fedpace.methods import FedRep
from tests.client.helpers import flat, statistics

from .bench import STEPS, Client, noise, sgd, watched


@pytest.mark.parametrize(("head_epochs", "epochs"), [(1, 1), (3, 2)])
def test_head_then_base(head_epochs, epochs):
    method, seen = watched(FedRep, **{**STEPS, "epochs": epochs}, head_epochs=head_epochs)
    client = Client(method)
    update = client.turn()
    assert len(seen) == 5 * (head_epochs + epochs)
    module = copy.deepcopy(client.module)
    for step, batch in enumerate(seen):
        part = client.layout.own if step < 5 * head_epochs else client.layout.shared
        sgd(module, batch, lr=0.1, trained=part.names.__contains__)
    expected = flat(module)
    torch.testing.assert_close(client.vector + update.vector, client.layout.take_shared(expected))
    torch.testing.assert_close(update.state["personal"], client.layout.take(expected, client.layout.own))
    torch.testing.assert_close(update.buffers.floats, statistics(module)[0])


def test_the_phases_see_batches_of_their_own():
    method, seen = watched(FedRep, **STEPS)
    Client(method).turn()
    assert not torch.equal(seen[0][0], seen[5][0])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("phase", ["own", "shared"])
def test_what_is_frozen_does_not_change_by_a_bit(phase, optimizer):
    """Although weight decay would pull at it."""
    client = Client(FedRep(**{**STEPS, "optimizer": optimizer, "weight_decay": 0.1}))
    method, layout, before = client.method, client.layout, client.model.vector.clone()
    method.load(client.vector, client.context())
    method.training(client.vector, client.training, client.context()).run(getattr(layout, phase))
    for part in (layout.own, layout.shared):
        unchanged = torch.equal(layout.take(client.model.vector, part), layout.take(before, part))
        assert unchanged == (part != getattr(layout, phase))


def test_the_head_is_kept_and_the_base_is_the_servers():
    client = Client(FedRep(**STEPS))
    kept = client.turn().state["personal"]
    client.vector = client.vector + noise(client.vector)
    inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    module = copy.deepcopy(client.module).eval()
    whole = flat(module)
    client.layout.put(whole, kept, client.layout.own)
    client.layout.put_shared(whole, client.vector)
    nn.utils.vector_to_parameters(whole, module.parameters())
    assert torch.equal(client.scores(inputs), module(inputs).detach())


def test_a_model_that_is_all_head_is_refused():
    expected = r"^'fedrep' shares nothing of Linear: expected layers before the head, found only .* \(bias, weight\)$"
    with pytest.raises(ModelError, match=expected):
        Client(FedRep(**STEPS), nn.Linear(5, 3))


def test_a_pace_slows_what_is_shared_and_leaves_the_head_alone():
    """The server knows only of shared coordinates; a pace of zero freezes those, and the head learns as ever."""
    still, free = Client(FedRep(**STEPS)), Client(FedRep(**STEPS))
    still.extras = {"pace": torch.zeros(still.layout.shared.size)}
    update = still.turn()
    assert not update.vector.any()
    assert torch.equal(update.state["personal"], free.turn().state["personal"])
