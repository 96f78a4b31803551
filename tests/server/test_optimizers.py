"""Server steps against steps by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from fedpace.aggregation import AndMask, Dampened, Masked, Mean
from fedpace.core import ConfigError, parse
from fedpace.experiments.config import RunConfig
from fedpace.experiments.parsing import parse_config
from fedpace.server import Schedule, ServerSGD, optimizers
from fedpace.server.optimizers import Adaptive, ServerAdagrad, ServerAdam, ServerYogi
from tests.stages import stage_with

from .helpers import THETA, buffers, exchange, server

DELTAS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.25, 0.0])
ADAPTIVE = [ServerAdagrad(), ServerAdam(), ServerYogi()]
REMEMBERING = [
    ServerSGD(momentum=0.9),
    *ADAPTIVE,
    ServerAdagrad(beta1=0.5),
    ServerAdam(v0="zero", bias_correction="flower"),
]
every_adaptive = pytest.mark.parametrize("optimizer", ADAPTIVE, ids=repr)
every_optimizer = pytest.mark.parametrize("optimizer", [ServerSGD(lr=0.3), *REMEMBERING], ids=repr)


@given(lr=st.floats(0.01, 3), momentum=st.floats(0, 0.99))
def test_sgd_by_hand(lr, momentum):
    vector, velocity, state = THETA.double(), torch.zeros(6, dtype=torch.float64), {}
    found = THETA.clone()
    for delta in DELTAS:
        velocity = momentum * velocity + delta.double()
        vector = vector + lr * velocity
        ServerSGD(lr=lr, momentum=momentum).step(found, delta, state)
    torch.testing.assert_close(found.double(), vector, rtol=1e-4, atol=1e-4)


def test_momentum_in_exact_numbers():
    found, state = torch.zeros(1), {}
    steps = []
    for delta in (1.0, 1.0, -2.0, 0.0):
        ServerSGD(lr=2.0, momentum=0.5).step(found, torch.tensor([delta]), state)
        steps.append(found.item())
    assert steps == [2.0, 5.0, 2.5, 1.25]  # v = 1, 1.5, −1.25, −0.625


def test_without_momentum_nothing_is_remembered():
    state = {}
    ServerSGD(lr=0.5).step(THETA.clone(), DELTAS[0], state)
    assert state == {}


def test_the_aggregate_is_not_changed():
    delta = DELTAS[0].clone()
    state = {}
    for _ in range(2):
        ServerSGD(momentum=0.5).step(THETA.clone(), delta, state)
    assert torch.equal(delta, DELTAS[0])


def test_momentum_lives_on_the_server():
    """FedAvgM: the second round moves by Δ + ½Δ."""
    stage = stage_with(optimizer=ServerSGD(momentum=0.5))
    here = server(Schedule(base=stage))
    for _ in range(2):
        exchange(here, torch.ones(3, 6))
    assert torch.equal(here.vector, THETA + 1 + 1.5)


@pytest.mark.parametrize("wrong", [{"lr": 0}, {"lr": -1}, {"momentum": 1}, {"momentum": -0.1}, {"beta": 1}])
def test_values_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"server optimizer 'sgd': ") as caught:
        parse(optimizers, {"name": "sgd", **wrong})
    assert "\n" not in str(caught.value)


# Adaptive optimizers against the published formulas -------------------------------------------------------------------


def flower(kind, deltas, *, eta, tau, beta_1, beta_2, v_t=0.0, corrected=False):
    """θ after each round of FedAdagrad, FedYogi or FedAdam as Flower has them; its rounds are counted from 1."""
    x, m_t, v_t = np.zeros(deltas.shape[1]), np.zeros(deltas.shape[1]), np.full(deltas.shape[1], v_t)
    found = []
    for server_round, delta_t in enumerate(deltas, start=1):
        m_t = beta_1 * m_t + (1 - beta_1) * delta_t
        if kind == "adagrad":
            v_t = v_t + delta_t**2
        elif kind == "yogi":
            v_t = v_t - (1.0 - beta_2) * delta_t**2 * np.sign(v_t - delta_t**2)
        else:
            v_t = beta_2 * v_t + (1 - beta_2) * delta_t**2
        eta_norm = eta
        if corrected:
            eta_norm = eta * np.sqrt(1 - beta_2 ** (server_round + 1.0)) / (1 - beta_1 ** (server_round + 1.0))
        x = x + eta_norm * m_t / (np.sqrt(v_t) + tau)
        found.append(x)
    return np.stack(found)


def walk(optimizer, deltas, masks=None):
    """θ after each step from zero, in double precision."""
    vector, state, found = torch.zeros(deltas.shape[1], dtype=torch.float64), {}, []
    for i, delta in enumerate(torch.as_tensor(deltas)):
        optimizer.step(vector, delta, state, None if masks is None else masks[i])
        found.append(vector.clone())
    return torch.stack(found).numpy()


@st.composite
def rounds(draw):
    """Updates of some rounds whose size changes from round to round, with zeros."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 12)), 5)
    return (
        generator.normal(size=shape)
        * 10.0 ** generator.integers(-4, 3, (shape[0], 1))
        * generator.integers(0, 2, shape)
    )


@given(deltas=rounds(), lr=st.floats(0.001, 2), beta1=st.floats(0, 0.99))
def test_adagrad_is_flowers(deltas, lr, beta1):
    ours = walk(ServerAdagrad(lr=lr, beta1=beta1, epsilon=1e-9, v0="zero"), deltas)
    np.testing.assert_allclose(ours, flower("adagrad", deltas, eta=lr, tau=1e-9, beta_1=beta1, beta_2=0.0), rtol=1e-9)


@given(deltas=rounds(), lr=st.floats(0.001, 2), betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)))
def test_yogi_is_flowers(deltas, lr, betas):
    ours = walk(ServerYogi(lr=lr, beta1=betas[0], beta2=betas[1], v0="zero"), deltas)
    theirs = flower("yogi", deltas, eta=lr, tau=1e-3, beta_1=betas[0], beta_2=betas[1])
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("correction", ["none", "flower"])
@given(deltas=rounds(), lr=st.floats(0.001, 2), betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)))
def test_adam_is_flowers(correction, deltas, lr, betas):
    """Older versions of Flower correct nothing."""
    options = {"v0": "zero", "bias_correction": correction, "epsilon": 1e-6}
    ours = walk(ServerAdam(lr=lr, beta1=betas[0], beta2=betas[1], **options), deltas)
    corrected = correction == "flower"
    theirs = flower("adam", deltas, eta=lr, tau=1e-6, beta_1=betas[0], beta_2=betas[1], corrected=corrected)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
@given(deltas=rounds())
def test_by_default_v_begins_at_epsilon_squared_and_nothing_is_corrected(kind, deltas):
    """Reddi et al., Algorithm 2."""
    optimizer = optimizers.get(kind)()
    options = {"eta": optimizer.lr, "tau": 1e-3, "beta_1": optimizer.beta1, "beta_2": 0.99, "v_t": 1e-6}
    np.testing.assert_allclose(walk(optimizer, deltas), flower(kind, deltas, **options), rtol=1e-9, atol=1e-9)


def test_the_correction_of_kingma_and_ba_makes_the_first_step_as_long_as_lr():
    """Adam's first step is lr · sgn(Δ); Flower's is not, because its first t is 2."""
    delta = np.array([[3.0, -0.2]])
    options = {"lr": 0.1, "epsilon": 1e-12, "v0": "zero"}
    np.testing.assert_allclose(walk(ServerAdam(bias_correction="kingma", **options), delta), [[0.1, -0.1]])
    flowers = 0.1 * (1 - 0.9) / (1 - 0.9**2) * np.sqrt((1 - 0.99**2) / (1 - 0.99))
    np.testing.assert_allclose(walk(ServerAdam(bias_correction="flower", **options), delta), [[flowers, -flowers]])


def test_the_correction_wears_off():
    deltas = np.random.default_rng(0).normal(size=(3000, 2))
    plain, corrected = (
        np.diff(walk(ServerAdam(v0="zero", bias_correction=correction), deltas), axis=0)
        for correction in ("none", "kingma")
    )
    assert not np.allclose(plain[0], corrected[0])
    np.testing.assert_allclose(plain[-1], corrected[-1], rtol=1e-6)


@pytest.mark.parametrize("optimizer", [ServerAdam, ServerYogi])
@given(deltas=rounds())
def test_without_memory_and_with_a_large_epsilon_the_step_is_that_of_sgd(optimizer, deltas):
    """Identity 9: lr · Δ / ε."""
    found = walk(optimizer(lr=2e8, beta1=0, beta2=0, epsilon=1e8, v0="zero"), deltas)
    np.testing.assert_allclose(found, walk(ServerSGD(lr=2.0), deltas), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "seconds"),
    [
        (ServerAdagrad(v0="zero"), [4.0, 5.0, 5.0]),
        (ServerAdam(beta2=0.5, v0="zero"), [2.0, 1.5, 0.75]),
        (ServerYogi(beta2=0.5, v0="zero"), [2.0, 1.5, 1.5]),
        (ServerAdagrad(epsilon=0.5), [4.25, 5.25, 5.25]),
        (ServerYogi(epsilon=2.0, beta2=0.5), [4.0, 3.5, 3.5]),  # sgn(0) = 0
    ],
    ids=repr,
)
def test_the_second_moment_in_exact_numbers(optimizer, seconds):
    vector, state, found = torch.zeros(1), {}, []
    for delta in (2.0, -1.0, 0.0):
        optimizer.step(vector, torch.tensor([delta]), state)
        found.append(state["second_moment"].item())
    assert found == seconds


@given(deltas=rounds())
def test_yogis_second_moment_is_never_negative(deltas):
    vector, state = torch.zeros(5), {}
    for delta in torch.as_tensor(deltas).float():
        ServerYogi(beta2=0.0).step(vector, delta, state)
        assert (state["second_moment"] >= 0).all()
        assert vector.isfinite().all()


@every_optimizer
def test_no_optimizer_changes_the_aggregate_or_the_mask(optimizer):
    delta, mask, state = DELTAS[0].clone(), MASK.clone(), {}
    for _ in range(2):
        optimizer.step(THETA.clone(), delta, state, mask)
    assert torch.equal(delta, DELTAS[0])
    assert torch.equal(mask, MASK)


@pytest.mark.parametrize("optimizer", [ServerSGD(momentum=0.5), ServerAdam(), ServerYogi()], ids=repr)
def test_without_an_update_momentum_keeps_moving(optimizer):
    here = server(Schedule(base=stage_with(optimizer=optimizer)))
    exchange(here, torch.ones(3, 6))
    before = here.vector.clone()
    exchange(here, torch.zeros(3, 6))
    assert (here.vector > before).all()


def test_adagrad_without_momentum_stands_still_without_an_update():
    here = server(Schedule(base=stage_with(optimizer=ServerAdagrad())))
    exchange(here, torch.ones(3, 6))
    before = here.vector.clone()
    exchange(here, torch.zeros(3, 6))
    assert torch.equal(here.vector, before)


@every_optimizer
def test_no_update_at_all_is_no_step(optimizer):
    here = server(Schedule(base=stage_with(optimizer=optimizer)))
    exchange(here, torch.zeros(3, 6))
    assert torch.equal(here.vector, THETA)


@every_adaptive
def test_buffers_are_averaged_and_nothing_else(optimizer):
    """An adaptive step on a running variance could make it negative."""
    here = server(Schedule(base=stage_with(optimizer=optimizer)), held=buffers([1.0], [1]))
    exchange(here, torch.ones(2, 6), held=[buffers([2.0], [3]), buffers([4.0], [5])])
    assert (here.buffers.floats.tolist(), here.buffers.integers.tolist()) == ([3.0], [5])
    assert {len(tensor) for name, tensor in here.state().items() if name.startswith("optimizer.")} == {6}


@every_optimizer
@pytest.mark.parametrize("interrupted", range(5))
def test_what_is_remembered_survives_a_checkpoint(optimizer, interrupted):
    schedule = Schedule(base=stage_with(optimizer=optimizer, rule=Dampened()))
    sent = torch.randn(5, 3, 6, generator=torch.Generator().manual_seed(1))
    straight, before, after = server(schedule), server(schedule), server(schedule, vector=torch.zeros(6))
    for rows in sent:
        exchange(straight, rows)
    for rows in sent[:interrupted]:
        exchange(before, rows)
    after.load_state(load(save(before.state())))
    for rows in sent[interrupted:]:
        exchange(after, rows)
    one, two = straight.state(), after.state()
    assert list(one) == list(two)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_what_is_remembered_has_a_name():
    here = server(Schedule(base=stage_with(optimizer=ServerAdam(bias_correction="kingma"))))
    for _ in range(3):
        exchange(here, torch.ones(2, 6))
    kept = {name.removeprefix("optimizer."): tensor for name, tensor in here.state().items() if "optimizer" in name}
    assert set(kept) == {"first_moment", "second_moment", "steps"}
    assert kept["steps"].tolist() == [3]


# Where the mask goes -------------------------------------------------------------------------------------------------


@every_optimizer
def test_a_mask_multiplies_the_step_and_nothing_else(optimizer):
    masks = (torch.rand(5, 6, generator=torch.Generator().manual_seed(2)) < 0.5).double()
    steps, masked = (np.diff(walk(optimizer, DELTAS.double(), m), axis=0, prepend=0) for m in (None, masks))
    np.testing.assert_allclose(masked, steps * masks.numpy(), rtol=1e-9, atol=1e-12)


@every_optimizer
def test_a_mask_of_ones_changes_no_bit(optimizer):
    plain, masked = (walk(optimizer, DELTAS.double(), masks) for masks in (None, torch.ones(5, 6)))
    np.testing.assert_array_equal(plain, masked)


def rows(seed=0, clients=4):
    return torch.randn(clients, 6, generator=torch.Generator().manual_seed(seed))


def run(rule, optimizer, mask_at, **options):
    here = server(Schedule(base=stage_with(rule=rule, optimizer=optimizer, mask_at=mask_at, **options)))
    for number in range(4):
        exchange(here, rows(number))
    return here.vector


@pytest.mark.parametrize("rule", [Dampened(), Masked(), AndMask(), Mean()], ids=repr)
def test_sgd_without_momentum_does_not_mind_where_the_mask_is(rule):
    """Both are bitwise the step along the rule's own result."""
    optimizer = ServerSGD(lr=0.3)
    expected = THETA.clone()
    for number in range(4):
        expected.add_(rule(rows(number)), alpha=0.3)
    assert torch.equal(run(rule, optimizer, "post", weights="uniform"), expected)
    assert torch.equal(run(rule, optimizer, "pre", weights="uniform"), expected)


@pytest.mark.parametrize("optimizer", REMEMBERING, ids=repr)
def test_optimizers_with_memory_mind_where_the_mask_is(optimizer):
    assert torch.equal(run(Mean(), optimizer, "post"), run(Mean(), optimizer, "pre"))
    assert torch.equal(run(Masked(tau=0.0), optimizer, "post"), run(Mean(), optimizer, "post"))
    for rule in (Dampened(), Masked(tau=0.6), AndMask(tau=0.6)):
        post, pre = (run(rule, optimizer, mask_at) - THETA for mask_at in ("post", "pre"))
        assert not torch.allclose(post, pre, rtol=0.1)


@pytest.mark.parametrize("mask_at", ["post", "pre"])
def test_the_moments_are_of_the_unmasked_or_the_masked_update(mask_at):
    """Two clients that disagree on every coordinate but the first, whose means are 2."""
    here = server(Schedule(base=stage_with(rule=AndMask(), optimizer=ServerAdam(beta1=0.5), mask_at=mask_at)))
    exchange(here, [[2.0] + [5.0] * 5, [2.0] + [-1.0] * 5])
    assert here.state()["optimizer.first_moment"].tolist() == [1.0] + [{"post": 1.0, "pre": 0.0}[mask_at]] * 5
    assert torch.equal(here.vector[1:], THETA[1:])
    assert here.vector[0] != THETA[0]
    exchange(here, torch.ones(2, 6))  # now they agree
    first = here.vector[0] - THETA[0]
    assert (here.vector[1:] != THETA[1:]).all()
    assert first > 0


def test_a_stopped_coordinate_gathers_momentum():
    """FedAvgM with an AND-mask, by hand: v = 2, then ½ · 2 + 1 = 2."""
    here = server(Schedule(base=stage_with(rule=AndMask(), optimizer=ServerSGD(momentum=0.5))))
    exchange(here, [[5.0] * 6, [-1.0] * 6])
    assert torch.equal(here.vector, THETA)
    exchange(here, torch.ones(2, 6))
    assert torch.equal(here.vector, THETA + 2)


def test_a_mask_before_adaptive_moments_is_nearly_undone_by_them():
    """Why ``post`` is the default: a coordinate of stable agreement is divided by its own size."""
    sent = torch.tensor([[3.0, 3.0], [3.0, 3.0], [3.0, -3.0]]).repeat(1, 3)  # agreements 1 and 1/3
    steps = {}
    for mask_at in ("post", "pre"):
        stage = stage_with(rule=Dampened(), optimizer=ServerAdam(v0="zero", epsilon=1e-6), mask_at=mask_at)
        here = server(Schedule(base=stage))
        exchange(here, sent)
        steps[mask_at] = (here.vector - THETA)[:2]
    assert steps["post"][1] / steps["post"][0] == pytest.approx(1 / 3, rel=1e-3)
    assert steps["pre"][1] / steps["pre"][0] == pytest.approx(1.0, rel=1e-3)


# Config --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "cls"), [("adagrad", ServerAdagrad), ("adam", ServerAdam), ("yogi", ServerYogi)])
def test_a_config_names_an_optimizer(name, cls):
    base = RunConfig(aggregate={"optimizer": name, "rule": "masked", "mask_at": "pre"}).schedule().base.exchanges[0]
    assert (base.optimizer, base.mask_at) == (cls(), "pre")
    assert RunConfig().schedule().base.exchanges[0].mask_at == "post"
    config = RunConfig(aggregate={"optimizer": {"name": name, "lr": 0.5, "v0": "zero"}})
    assert config.schedule().base.exchanges[0].optimizer == cls(lr=0.5, v0="zero")
    assert RunConfig(**config.model_dump(mode="json")) == config


def test_every_adaptive_optimizer_is_registered():
    assert {optimizers.get(name) for name in optimizers.names()} == {*Adaptive.__subclasses__(), ServerSGD}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"optimizer": "adamm"}, r"here: unknown server optimizer 'adamm'; did you mean 'adam'\?"),
        ({"optimizer": {"name": "adam", "beta1": 1}}, "'adam': beta1: input should be less than 1, found 1"),
        ({"optimizer": {"name": "yogi", "epsilon": 0}}, "'yogi': epsilon: input should be greater than 0, found 0"),
        ({"optimizer": {"name": "yogi", "lr": float("inf")}}, "'yogi': lr: input should be a finite number"),
        ({"optimizer": {"name": "adam", "v0": "one"}}, "'adam': v0: input should be 'epsilon_squared' or 'zero'"),
        ({"optimizer": {"name": "adam", "bias_correction": True}}, "bias_correction: input should be 'none', 'kingma'"),
        ({"optimizer": {"name": "adagrad", "beta2": 0.9}}, r"unknown key 'beta2'; did you mean 'beta1'\?"),
        ({"mask_at": "both"}, "here: aggregate.mask_at: input should be 'post' or 'pre', found 'both'"),
        (
            {"rule": {"name": "masked", "threshold": 0.4}},
            "'masked': threshold: input should be 'inclusive' or 'strict'",
        ),
        ({"rule": {"name": "and_mask", "tau": 1.1}}, "'and_mask': tau: input should be less than or equal to 1"),
    ],
)
def test_a_bad_value_in_a_config_is_one_line(table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config({"aggregate": table}, "here")
    assert "\n" not in str(caught.value)
