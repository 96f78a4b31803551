"""The round as a whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from fedpace.aggregation import Dampened, Masked, Mean, rules
from fedpace.core import Update
from fedpace.server import Exchange, Pruning, Schedule, ServerSGD, Stage
from tests.stages import stage_with

from .helpers import THETA, buffers, exchange, server, updates


def rows(clients=4, seed=0):
    return torch.randn(clients, 6, generator=torch.Generator().manual_seed(seed))


# Identities ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(0, 1000))
def test_fedavg_by_hand(clients, seed):
    here = server()
    sent = rows(clients, seed)
    exchange(here, sent)
    torch.testing.assert_close(here.vector, THETA + sent.mean(0))


def test_weights_by_samples():
    here = server(Schedule(base=stage_with(weights="samples")))
    exchange(here, [[4.0] * 6, [0.0] * 6], examples=[30, 10])
    assert torch.equal(here.vector, THETA + 3)


def test_uniform_weights_ignore_samples():
    here = server(Schedule(base=stage_with(weights="uniform")))
    exchange(here, [[4.0] * 6, [0.0] * 6], examples=[30, 10])
    assert torch.equal(here.vector, THETA + 2)


@given(st.integers(1, 9), st.integers(0, 1000))
def test_dampening_clients_that_agree_is_a_fedsgd_step(clients, seed):
    sent = rows(clients, seed).abs() + 0.1
    optimizer = ServerSGD(lr=0.01)
    dampened, plain = server(), server()
    exchange(dampened, sent, stage_with(sends="gradient", rule=Dampened(), optimizer=optimizer))
    exchange(plain, sent, stage_with(sends="gradient", optimizer=optimizer))
    assert torch.equal(dampened.vector, plain.vector)
    assert not torch.equal(plain.vector, THETA)


@given(st.integers(1, 9), st.integers(0, 1000))
def test_a_dampened_step_is_never_longer_and_never_turned(clients, seed):
    sent = rows(clients, seed)
    dampened, plain = server(), server()
    exchange(dampened, sent, stage_with(rule=Dampened()))
    exchange(plain, sent, stage_with())
    step, fedsgd = dampened.vector - THETA, plain.vector - THETA
    assert (step.abs() <= fedsgd.abs() + 1e-6).all()
    assert (step * fedsgd >= 0).all()


def fedpace(**stages):
    """FedPACE in six rounds: FedAvg, FedAvg, dampening, dampening, pruning, pruning."""
    common = {"sends": "gradient", "rule": Dampened(), "optimizer": ServerSGD(lr=0.5)}
    windows = {
        "dampen": stage_with(name="dampen", first=2, last=3, **common),
        "prune": stage_with(name="prune", first=4, counts=True, prunes=True, **common),
    }
    chosen = tuple(stage for name, stage in windows.items() if stages.get(name))
    return Schedule(stages=chosen, pruning=Pruning(threshold=0.6))


def play(here, rounds):
    for r in rounds:
        sent = rows(seed=r)
        sent[:, 0] = torch.tensor([1.0, 2, -1, -4])  # one conflict lasts from beginning to end
        exchange(here, sent, here.schedule.stage(r), held=[buffers([float(r)], [r])] * 4)
    return here


def test_fedpace_with_all_stages_off_is_fedavg_bitwise():
    off, plain = (play(server(s, held=buffers([0.0], [0])), range(6)) for s in (fedpace(), Schedule()))
    assert torch.equal(off.vector, plain.vector)
    assert torch.equal(off.buffers.floats, plain.buffers.floats)
    on = play(server(fedpace(dampen=True, prune=True), held=buffers([0.0], [0])), range(6))
    assert not torch.equal(on.vector, plain.vector)


def test_a_mask_of_tau_zero_is_fedavg_bitwise():
    masked, plain = (play(server(Schedule(base=stage_with(rule=rule))), range(3)) for rule in (Masked(tau=0.0), Mean()))
    assert torch.equal(masked.vector, plain.vector)


@pytest.mark.parametrize("name", rules.names())
def test_answers_may_be_overwritten_by_the_next(name):
    """Executors lend their tensors."""
    sent, lent = rows(5), torch.empty(6)
    held = buffers([0.0], [0])

    def answers():
        for i, row in enumerate(sent):
            held.floats.fill_(float(i))
            held.integers.fill_(i)
            yield Update(i, lent.copy_(row), 10, {"loss": 0.0}, held)
        lent.fill_(float("nan"))
        held.floats.fill_(float("nan"))

    stage = stage_with(rule=name)
    one, two = server(held=buffers([9.0], [9])), server(held=buffers([9.0], [9]))
    one.exchange(stage.exchanges[0], answers(), 5)
    exchange(two, sent, stage, held=[buffers([float(i)], [i]) for i in range(5)])
    assert torch.equal(one.vector, two.vector)
    assert (one.buffers.floats.tolist(), one.buffers.integers.tolist()) == ([2.0], [4])


@pytest.mark.parametrize("pairwise", [0, 2, 32])
@pytest.mark.parametrize("name", rules.names())
def test_updates_may_be_written_where_they_will_be_kept(name, pairwise):
    stage, places = stage_with(rule=name), set()
    one, two = server(pairwise=pairwise), server(pairwise=pairwise)

    def answers(sent):
        for i, row in enumerate(sent):
            kept = one.lend_row()
            places.update(() if kept is None else [kept.data_ptr()])
            yield Update(i, row.clone() if kept is None else kept.copy_(row), 10, {"loss": float(i)})

    for seed in range(3):
        sent = rows(5, seed)
        sent[1] = torch.nan  # that client is dropped, and the next one lies in its place
        found, expected = one.exchange(stage.exchanges[0], answers(sent), 5), exchange(two, sent, stage)
        assert torch.equal(one.vector, two.vector)
        assert (found.similarity, found.agreement) == (expected.similarity, expected.agreement)
    keeps_all = stage.exchanges[0].rule.start(6, 5).rows is not None
    assert len(places) == (4 if keeps_all else min(pairwise, 4))  # the same ones in all rounds


# A second exchange within a round ------------------------------------------------------------------------------------


def test_then_is_a_second_exchange_from_where_the_first_ended():
    """The authors' runs: a dampened step, then a whole FedAvg round."""
    dampened = Exchange(sends="gradient", rule=Dampened(), optimizer=ServerSGD(lr=0.5))
    here = server(Schedule(base=Stage(exchanges=(dampened, Exchange()))))
    gradients = torch.tensor([[2.0] * 6, [2.0] * 6, [-1.0] * 6])
    reports = []
    for part in here.schedule.stage(0).exchanges:
        sent = gradients if part.sends == "gradient" else torch.full((3, 6), 10.0)
        reports.append(here.exchange(part, updates(sent), 3))
    torch.testing.assert_close(here.vector, THETA + 0.5 * 1.0 / 3 + 10)
    assert [report.similarity.kind for report in reports] == ["gradient", "update"]
    assert [report.similarity.mean for report in reports] == pytest.approx([-1 / 3, 1.0])


# What is reported ----------------------------------------------------------------------------------------------------


def test_the_report():
    report = exchange(server(), rows(4), stage_with(rule=Dampened()))
    assert (report.used, report.dropped, report.train_loss) == (4, [], 1.5)
    assert set(report.diagnostics) == {"below_tau", "mean_factor", "majority_mismatch"}
    assert sum(report.agreement.histogram) == 6
    assert report.diagnostics["mean_factor"] == pytest.approx(report.agreement.mean)


def test_what_a_server_was_given_stays_the_givers():
    vector, held = THETA.clone(), buffers([1.0], [1])
    here = server(vector=vector, held=held)
    exchange(here, rows(2), held=[buffers([5.0], [5])] * 2)
    assert torch.equal(vector, THETA)
    assert (held.floats.tolist(), held.integers.tolist()) == ([1.0], [1])


# Checkpoints ---------------------------------------------------------------------------------------------------------


def stateful():
    """Momentum in every stage, counters that pass from dampening to pruning, a permanent mask."""
    heavy = ServerSGD(lr=0.3, momentum=0.9)
    common = {"sends": "gradient", "rule": Dampened(), "optimizer": heavy, "counts": True}
    return Schedule(
        base=stage_with(optimizer=heavy),
        stages=(
            stage_with(name="dampen", first=2, last=4, **common),
            stage_with(name="prune", first=5, prunes=True, **common),
        ),
        pruning=Pruning(threshold=0.4, persistence=2),
    )


@pytest.mark.parametrize("interrupted", range(8))
def test_a_server_continues_from_a_checkpoint_bitwise(interrupted):
    straight = play(server(stateful(), held=buffers([0.0], [0])), range(8))
    assert 0 < straight.pruned < 1
    before = play(server(stateful(), held=buffers([0.0], [0])), range(interrupted))
    after = server(stateful(), vector=torch.zeros(6), held=buffers([5.0], [5]))
    after.load_state(load(save(before.state())))
    play(after, range(interrupted, 8))
    assert straight.pruner.counters.tolist() == after.pruner.counters.tolist()
    assert straight.pruner.counters[0] == 6  # rounds 2 to 7
    one, two = straight.state(), after.state()
    assert list(one) == list(two)
    assert all(torch.equal(one[name], two[name]) and one[name].dtype == two[name].dtype for name in one)


def test_momentum_and_pruning_are_part_of_the_state():
    names = set(play(server(stateful(), held=buffers([0.0], [0])), range(6)).state())
    assert {"vector", "buffers.floats", "buffers.integers", "optimizer.momentum"} < names
    assert {"pruning.mask", "pruning.counters"} < names
    assert set(server().state()) == {"vector", "buffers.floats", "buffers.integers"}


def test_a_state_is_a_snapshot():
    """Going on does not change a state that was taken before, and two servers never share one vector."""
    here = play(server(stateful(), held=buffers([0.0], [0])), range(6))
    taken = here.state()
    copies = {name: tensor.clone() for name, tensor in taken.items()}
    other = server(stateful(), held=buffers([0.0], [0]))
    other.load_state(taken)
    play(here, range(6, 8))
    for name, tensor in taken.items():
        assert torch.equal(tensor, copies[name]), name
    play(other, range(6, 8))
    assert torch.equal(other.vector, here.vector)


def test_the_order_of_clients_matters_only_to_rounding():
    sent = updates(rows(6))
    one, two = server(), server()
    one.exchange(Exchange(rule=Dampened()), sent, 6)
    two.exchange(Exchange(rule=Dampened()), sent[::-1], 6)
    torch.testing.assert_close(one.vector, two.vector)
