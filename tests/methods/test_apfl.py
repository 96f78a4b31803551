"""APFL against loops written by hand, in both variants."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn import functional as F

from fedpace.methods import APFL, LocalSGD
from tests.client.helpers import Bench, flat, normed, plain, statistics

from .bench import STEPS, Client, noise, watched

variants = pytest.mark.parametrize("variant", ["paper", "pfllib"])


def gradient(module, batch):
    loss = F.cross_entropy(module(batch[0]), batch[1])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def put(module, vector):
    torch.nn.utils.vector_to_parameters(vector, module.parameters())


def paper(w, mixed, v, alpha, batch, lr):
    """One batch: w as a module, v as a vector, and the module whose statistics are the personal ones."""
    here = flat(w)
    put(mixed, alpha * v + (1 - alpha) * here)
    own, common = gradient(mixed, batch), gradient(w, batch)
    put(w, here - lr * common)
    return v - lr * alpha * own, alpha - lr * float(own @ (v - here))


def pfllib(w, mixed, v, alpha, batch, lr):
    put(mixed, v)
    own, common = gradient(mixed, batch), gradient(w, batch)
    put(w, flat(w) - lr * common)
    v = v - lr * own
    slope = float((v - flat(w)) @ (alpha * own + (1 - alpha) * common))
    return v, alpha - lr * (slope + 0.02 * alpha)


@pytest.mark.parametrize("step", [paper, pfllib], ids=["paper", "pfllib"])
def test_two_turns(step):
    method, seen = watched(APFL, **STEPS, variant=step.__name__, alpha=0.6)
    client = Client(method)
    w, mixed, v, alpha = copy.deepcopy(client.module), copy.deepcopy(client.module), client.vector.clone(), 0.6
    for seed in range(2):
        seen.clear()
        client.turn(seed)
        batches = seen[::2]  # each is seen by both models
        assert len(batches) == 5
        for batch in batches:
            v, alpha = step(w, mixed, v, alpha, batch, lr=0.1)
        if step is pfllib:
            v = alpha * v + (1 - alpha) * flat(w)
        torch.testing.assert_close(client.state["v"], v)
        assert float(client.state["alpha"]) == pytest.approx(alpha, abs=1e-5)
        torch.testing.assert_close(client.state["v.floats"], statistics(mixed)[0])
        client.vector = client.vector + noise(client.vector)  # what others did to it
        put(w, client.vector)
        w.load_state_dict({**w.state_dict(), **dict(client.module.named_buffers())})  # as the server sends them
    assert 0.01 < alpha < 0.59 or 0.61 < alpha < 0.99  # it has learnt, and was not clipped


@variants
def test_what_is_sent_is_fedavgs_whatever_the_client_keeps(variant):
    client, bench = Client(APFL(**STEPS, variant=variant)), Bench(normed())
    expected = bench.run(LocalSGD(**STEPS), client.training)
    for _ in range(2):
        update = client.turn()
        assert torch.equal(update.vector, expected.vector)
        assert torch.equal(update.buffers.floats, expected.buffers.floats)
        assert update.extras == {}


@given(
    variant=st.sampled_from(["paper", "pfllib"]),
    alpha=st.floats(0, 1),
    lr=st.sampled_from([0.01, 1.0, 5.0]),
    seed=st.integers(0, 99),
)
def test_alpha_stays_between_zero_and_one(variant, alpha, lr, seed):
    client = Client(APFL(**{**STEPS, "lr": lr}, variant=variant, alpha=alpha), plain())
    client.state["v"] = client.state["v"] + noise(client.vector, scale=2.0, seed=seed)
    for _ in range(2):
        client.turn(seed)
        assert 0 <= float(client.state["alpha"]) <= 1


@pytest.mark.parametrize(("variant", "share"), [("paper", 0.25), ("pfllib", 1.0)])
def test_the_client_answers_with_its_own_model_and_statistics(variant, share):
    """In the paper's variant mixed with what the server sends now."""
    client = Client(APFL(**STEPS, variant=variant, alpha=0.5))
    client.turn()
    client.state["alpha"] = torch.tensor(0.25)
    client.vector = client.vector + noise(client.vector)
    bench, inputs = Bench(normed()), torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    bench.buffers.floats.copy_(client.state["v.floats"])
    bench.model.load(share * client.state["v"] + (1 - share) * client.vector, bench.buffers)
    torch.testing.assert_close(client.scores(inputs), bench.model.module.eval()(inputs).detach())


def test_the_defaults_are_pfllibs_and_alpha_is_a_share():
    assert (APFL().variant, APFL().alpha) == ("pfllib", 1.0)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValidationError):
            APFL(alpha=wrong)
