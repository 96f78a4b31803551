"""FedCP against the authors' ensemble of copies, and what stays out of training."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedpace.aggregation import ConflictFree
from fedpace.core import derive
from fedpace.methods import FedCP
from fedpace.methods.fedcp import mmd
from fedpace.server import Schedule
from tests.client.helpers import flat, normed, statistics
from tests.engine import small
from tests.stages import stage_with

from .bench import STEPS, Client, noise, run


def naive_mmd(x, y):
    def kernel(a, b):
        distance = (a[:, None] - b[None]).square().sum(-1)
        return sum((-distance / (2 * width)).exp() for width in (10, 15, 20, 50)).mean()

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


def by_hand(client, lam, personal_head, seed=7):
    """Copies for everything: a frozen base with statistics of its own, two heads, one optimizer for what is trained."""
    model, policy = copy.deepcopy(client.module.model).train(), copy.deepcopy(client.module.policy).train()
    frozen, head_g = copy.deepcopy(model), copy.deepcopy(client.module.head_g)
    nn.utils.vector_to_parameters(personal_head, model[-1].parameters())
    context = F.normalize(model[-1].weight.detach().sum(0, keepdim=True))
    optimizer = torch.optim.SGD([*model.parameters(), *policy.parameters()], lr=0.1)
    torch.manual_seed(derive(seed, "gumbel"))
    for inputs, labels in client.method.batches(client.training, client.context(seed)):
        features = model[:-1](inputs)
        pairs = policy.layers(features * context).view(len(features), 2, 6)
        personal, common = F.gumbel_softmax(pairs, tau=1, hard=False, dim=1).unbind(1)
        loss = F.cross_entropy(model[-1](features * personal) + head_g(features * common), labels)
        loss = loss + lam * naive_mmd(features, frozen[:-1](inputs).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, policy, head_g


@pytest.mark.parametrize("lam", [0.0, 1.0, 5.0])
def test_it_is_the_authors_loop(lam):
    client = Client(FedCP(**STEPS, lam=lam))
    client.state = {"personal": client.state["personal"] + noise(client.state["personal"])}
    model, policy, head_g = by_hand(client, lam, client.state["personal"].clone())
    update = client.turn()
    found = client.layout.shared.tensors(client.vector + update.vector)
    expected = {f"model.{name}": tensor for name, tensor in model.named_parameters()}
    expected |= {f"policy.{name}": tensor for name, tensor in policy.named_parameters()}
    halves = zip(head_g.named_parameters(), model[-1].parameters(), strict=True)
    expected |= {f"head_g.{name}": (common + own) / 2 for (name, common), own in halves}
    for name, tensor in found:
        torch.testing.assert_close(tensor, expected[name].detach(), atol=1e-6, rtol=1e-4, msg=name)
    torch.testing.assert_close(client.state["personal"], flat(model[-1]), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(update.buffers.floats, statistics(model)[0])
    assert torch.equal(update.buffers.integers, statistics(model)[1])  # no batch was counted twice


def test_the_distance_holds_the_features_back():
    moved = []
    for lam in (0.0, 100.0):
        client = Client(FedCP(**{**STEPS, "lr": 0.01, "epochs": 3}, lam=lam))
        inputs = client.training.batch(slice(None))[0]
        update = client.turn()
        before, after = copy.deepcopy(client.module.model), copy.deepcopy(client.module.model)
        for name, tensor in client.layout.shared.tensors(client.vector + update.vector):
            if name.startswith("model."):
                after.get_parameter(name.removeprefix("model.")).data.copy_(tensor)
        with torch.no_grad():
            moved.append(float(mmd(before[:-1](inputs), after[:-1](inputs))))
    assert moved[1] < moved[0] / 2


def test_half_of_the_way_from_the_global_to_the_personal_head_is_sent():
    client = Client(FedCP(**STEPS))
    client.state = {"personal": client.state["personal"] + noise(client.state["personal"])}
    update = client.turn()
    sent = [t.flatten() for n, t in client.layout.shared.tensors(update.vector) if n.startswith("head_g.")]
    torch.testing.assert_close(torch.cat(sent), (client.state["personal"] - flat(client.module.head_g)) / 2)


def test_answers_are_free_of_noise_and_training_is_not():
    client, inputs = Client(FedCP(**STEPS)), noise(torch.zeros(9, 5), scale=1.0)
    client.turn()
    first = client.scores(inputs, seed=1)
    torch.manual_seed(99)
    assert torch.equal(client.scores(inputs, seed=2), first)
    module = client.model.module.train()
    assert not torch.equal(module.policy(inputs[:, :1].repeat(1, 6))[0], module.policy(inputs[:, :1].repeat(1, 6))[0])


def test_it_answers_with_divided_features():
    client, inputs = Client(FedCP(**STEPS)), noise(torch.zeros(9, 5), scale=1.0)
    client.turn()
    found = client.scores(inputs)
    module = copy.deepcopy(client.module).eval()
    nn.utils.vector_to_parameters(client.state["personal"], module.model[-1].parameters())
    features = module.model[:-1](inputs)
    own = module.model[-1].weight.sum(0)
    personal, common = module.policy.layers(features * own / own.norm()).view(9, 2, 6).softmax(1).unbind(1)
    torch.testing.assert_close(personal + common, torch.ones(9, 6))
    expected = module.model[-1](features * personal) + module.head_g(features * common)
    torch.testing.assert_close(found, expected.detach())


def test_the_global_model_answers_with_the_global_head():
    module, inputs = FedCP().prepare(normed(), seed=0).eval(), noise(torch.zeros(9, 5), scale=1.0)
    expected = module(inputs)
    module.model[-1].weight.data.zero_()
    assert torch.equal(module(inputs), expected)


def test_the_policy_is_drawn_from_the_runs_seed():
    """And the user's random numbers go on undisturbed."""
    before = torch.random.get_rng_state()
    one, two, other = (flat(FedCP().prepare(normed(), seed).policy) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_mmd_is_the_mean_of_its_kernels(first, second, seed):
    x, y = noise(torch.zeros(first, 4), 3.0, seed), noise(torch.zeros(second, 4), 3.0, seed + 1)
    torch.testing.assert_close(mmd(x, y), naive_mmd(x, y), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mmd(x, y), mmd(y, x), atol=1e-5, rtol=1e-4)
    assert mmd(x, y) >= -1e-5
    assert abs(mmd(x, x)) < 1e-5


def test_a_rule_is_for_the_base_alone():
    """Global head and policy keep the mean by samples, bitwise."""
    method = FedCP(**STEPS, max_steps=2)
    base = {f"model.{name}" for name, _ in small.module().named_parameters() if not name.startswith("head.")}
    stages = stage_with(weights="samples"), stage_with(rule=ConflictFree(), weights="samples")
    mean, rule = (run(method, schedule=Schedule(base=stage), rounds=1).module for stage in stages)
    changed = {
        n for (n, one), two in zip(mean.named_parameters(), rule.parameters(), strict=True) if (one != two).any()
    }
    assert changed == base
