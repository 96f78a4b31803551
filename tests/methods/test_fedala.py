"""FedALA against a loop written by hand, and how long W is learnt."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from fedpace.methods import FedALA, LocalSGD
from tests.client.helpers import Bench, flat, normed, plain, shards

from .bench import STEPS, Client, noise, sgd, watched

PASS = 4  # batches of 8 in four fifths of 40 examples


def with_a_past(method, module=None, scale=0.3, **kept):
    """A client that took a turn before; since then the server's model has moved."""
    client = Client(method, module)
    client.turn(seed=1)
    client.state |= kept
    client.vector = client.vector + noise(client.vector, scale)
    return client


def mixture(module, local, server, weights, batches, eta, top):
    """W and the mixed module, tensor by tensor."""
    local, server = ([*copy.deepcopy(m).parameters()] for m in (local, server))
    parameters = [*module.parameters()]
    for batch in [None, *batches]:
        with torch.no_grad():
            for i, (here, mine, theirs) in enumerate(zip(parameters, local, server, strict=True)):
                here.copy_(mine + (theirs - mine) * weights[i - top] if i >= top else theirs)
        if batch is None:
            continue
        gradients = torch.autograd.grad(F.cross_entropy(module(batch[0]), batch[1]), parameters[top:])
        for i, gradient in enumerate(gradients, start=top):
            weights[i - top] = (weights[i - top] - eta * gradient * (server[i] - local[i])).clamp(0, 1).detach()
    with torch.no_grad():
        for i in range(top, len(parameters)):
            parameters[i].copy_(local[i] + (server[i] - local[i]) * weights[i - top])
    return torch.cat([w.flatten() for w in weights])


@pytest.mark.parametrize(("layer_idx", "top"), [(2, 3), (0, 0), (4, 1), (9, 0)])
def test_a_turn(layer_idx, top):
    """The normed model has five tensors."""
    method, seen = watched(FedALA, **STEPS, layer_idx=layer_idx, eta=20.0)
    shapes = [p.shape for p in normed().parameters()][top:]
    weights = [torch.rand(shape, generator=torch.Generator().manual_seed(2)) for shape in shapes]
    client = with_a_past(method, W=torch.cat([w.flatten() for w in weights]))
    bench = Bench(normed())
    local, server = bench.at(client.state["local"].clone()), bench.at(client.vector.clone())
    seen.clear()
    update = client.turn(seed=2)
    module = bench.at(client.vector.clone())
    learnt = mixture(module, local, server, weights, seen[:PASS], 20.0, top)
    torch.testing.assert_close(update.state["W"], learnt)
    assert bool(((learnt > 0) & (learnt < 1)).any())  # not all of it is clipped
    for batch in seen[PASS:]:
        sgd(module, batch, lr=0.1)
    assert len(seen) == PASS + 5
    torch.testing.assert_close(update.state["local"], flat(module))
    torch.testing.assert_close(update.vector, flat(module) - client.vector)  # from θ, not from where training began


def test_learning_w_leaves_no_trace_in_the_statistics():
    """They are those of training from the mixture alone."""
    client = with_a_past(FedALA(**STEPS, eta=1e-9, layer_idx=0), W=torch.ones(Client(FedALA()).vector.shape))
    bench = Bench(normed())
    bench.vector = client.vector
    expected = bench.run(LocalSGD(**STEPS), client.training)
    torch.testing.assert_close(client.turn().buffers.floats, expected.buffers.floats)


@pytest.mark.parametrize("layer_idx", [0, 2])
def test_if_the_server_has_the_clients_own_model_it_is_local_training(layer_idx):
    """So the first round is, and W is still to be learnt."""
    client, bench = Client(FedALA(**STEPS, layer_idx=layer_idx)), Bench(normed())
    update = client.turn()
    assert torch.equal(update.vector, bench.run(LocalSGD(**STEPS), client.training).vector)
    assert "W" not in update.state
    client.vector, bench.vector = client.state["local"].clone(), client.state["local"].clone()
    client.state["W"] = torch.full((21,), 0.5)
    update = client.turn(seed=8)
    assert torch.equal(update.vector, bench.run(LocalSGD(**STEPS), client.training, seed=8).vector)
    assert torch.equal(update.state["W"], torch.full((21,), 0.5))


@pytest.mark.parametrize("change", ["another tensor", "sum of zero"])
def test_it_is_mixed_unless_all_is_equal(change):
    """Neither the first tensor alone nor the sum of what it changed by tells."""
    client = Client(FedALA(**STEPS))
    client.turn()
    client.vector = client.state["local"].clone()
    client.vector[-1] += 1
    if change == "sum of zero":
        client.vector[:2] += torch.tensor([0.5, -0.5])
    assert "W" in client.turn().state


@pytest.mark.parametrize(
    ("settings", "passes"),
    [({"threshold": 1e9}, 11), ({"threshold": 0.0}, 100), ({"share": 0.5, "threshold": 1e9}, 11)],
)
def test_the_first_time_takes_until_it_settles_and_later_ones_a_single_pass(settings, passes):
    method, seen = watched(FedALA, **STEPS, **settings)
    client = with_a_past(method)
    per_pass = 2 if "share" in settings else PASS
    for expected in (passes, 1):
        seen.clear()
        client.turn()
        assert len(seen) == expected * per_pass + 5
    once = torch.cat([inputs for inputs, _ in seen[:per_pass]])
    assert len(once.unique(dim=0)) == 8 * per_pass  # no example twice


def test_a_loss_that_is_no_number_is_given_up():
    method, seen = watched(FedALA, **STEPS)
    client = with_a_past(method)
    client.vector[0] = torch.nan
    seen.clear()
    assert bool(client.turn().vector.isnan().any())  # the guard's business
    assert len(seen) == 100 * PASS + 5


@given(
    layer_idx=st.integers(0, 2),
    eta=st.sampled_from([0.1, 1.0, 1e4]),
    scale=st.sampled_from([1e-3, 1.0, 10.0]),
    size=st.integers(1, 30),
)
def test_w_stays_between_zero_and_one(layer_idx, eta, scale, size):
    client = with_a_past(FedALA(**STEPS, layer_idx=layer_idx, eta=eta, threshold=1e9), plain(), scale)
    client.training = shards(size, 9, seed=size)[0]
    for _ in range(2):
        weights = client.turn().state["W"]
        assert len(weights) == sum([p.numel() for p in plain().parameters()][-layer_idx:])
        assert 0 <= float(weights.min()) <= float(weights.max()) <= 1


def test_the_client_answers_with_the_mixture_and_forgets_it():
    client = with_a_past(FedALA(**STEPS, eta=20.0), W=torch.full((21,), 0.5))
    before = {name: tensor.clone() for name, tensor in client.state.items()}
    client.scores(torch.zeros(1, 5))
    mixed, layout = client.model.vector, client.layout
    top = layout.slices["3.weight"].start
    assert torch.equal(mixed[:top], client.vector[:top])
    local, server = client.state["local"][top:], client.vector[top:]
    assert bool((mixed[top:] <= torch.maximum(local, server)).all())
    assert bool((mixed[top:] >= torch.minimum(local, server)).all())
    assert not torch.allclose(mixed[top:], local.lerp(server, torch.tensor(0.5)))  # W went on learning
    assert torch.equal(client.model.buffers.floats, client.buffers.floats)
    assert all(torch.equal(client.state[name], before[name]) for name in before)
