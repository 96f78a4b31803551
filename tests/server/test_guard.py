"""What a client can get wrong never stops the round."""

import logging
import re

import pytest
import torch

from fedpace.aggregation import Dampened, rules
from fedpace.core import ClientError, Dropped, Layout, RoundReport, Update
from fedpace.server import (
    Exchange,
    Guard,
    Schedule,
    ServerAdagrad,
    ServerAdam,
    ServerSGD,
    ServerYogi,
    Stage,
)
from tests.stages import stage_with

from .helpers import THETA, buffers, exchange, play_round, server, updates

NAN, INF = float("nan"), float("inf")
GOOD = torch.tensor([[1.0, 1, 1, 1, 1, 1], [3.0, 3, 3, 3, 3, 3]])


def broken(kind):
    update = Update(9, torch.full((6,), 2.0), 10, {"loss": 9.0}, buffers([1.0], [1]))
    if kind in ("nan", "inf", "-inf", "2e15", "-3.4e38"):
        update.vector[2] = float(kind)
    elif kind == "buffers":
        update.buffers.floats[0] = INF
    elif kind == "large buffers":
        update.buffers.floats[0] = 3e38
    elif kind == "examples":
        update.examples = 10**16
    elif kind == "no number of examples":
        update.examples = NAN
    elif kind == "shape":
        update.vector = torch.ones(5)
    elif kind == "matrix":
        update.vector = torch.ones(2, 3)
    elif kind == "nothing":
        update.vector = None
    elif kind == "no examples":
        update.examples = 0
    elif kind == "failure":
        update = Update(9, failure="ValueError: no such class")
    return update


REASONS = {
    "nan": "not finite",
    "inf": "not finite",
    "-inf": "not finite",
    "buffers": "not finite",
    "2e15": "larger than 1e+15",
    "-3.4e38": "larger than 1e+15",
    "large buffers": "larger than 1e+15",
    "examples": "claims more than 1e+15 examples",
    "no number of examples": "empty",
    "shape": "wrong shape: expected 6 coordinates, found (5,)",
    "matrix": "wrong shape: expected 6 coordinates, found (2, 3)",
    "nothing": "empty",
    "no examples": "empty",
    "failure": "ValueError: no such class",
}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("kind", REASONS)
def test_a_broken_client_is_dropped_and_named(kind, position, caplog):
    here = server(held=buffers([0.0], [0]))
    sent = updates(GOOD, held=[buffers([1.0], [1])] * 2)
    sent.insert(position, broken(kind))
    report = here.exchange(Exchange(), sent, 3)
    assert report.dropped == [Dropped(9, REASONS[kind])]
    assert f"client 9 dropped: {REASONS[kind]}" in caplog.messages
    assert report.used == 2
    assert torch.equal(here.vector, THETA + 2)
    assert report.train_loss == 0.5
    assert here.buffers.floats.tolist() == [1.0]


@pytest.mark.parametrize("name", rules.names())
def test_every_rule_is_the_rule_of_those_who_remain(name):
    stage = stage_with(rule=name, weights="samples")
    rows = torch.tensor([[1.0, -1, 2, 0, 1, 1], [1.0, 1, -3, 0, 1, -1], [1.0, 2, 1, 1, -2, 1]])
    among_broken, alone = server(), server()
    sent = updates(rows, examples=[1, 5, 2])
    report = among_broken.exchange(
        stage.exchanges[0], [broken("nan"), *sent[:2], broken("shape"), *sent[2:], broken("failure")], 6
    )
    exchange(alone, rows, stage, examples=[1, 5, 2])
    assert torch.equal(among_broken.vector, alone.vector)
    assert len(report.agreement.histogram) == 3 + 1  # agreement of three clients, not of six


def test_agreement_counts_only_those_who_remain():
    """Two clients that agree have agreement 1, not 2/3."""
    here = server()
    here.exchange(Exchange(rule=Dampened()), [*updates(GOOD), broken("nan")], 3)
    assert torch.equal(here.vector, THETA + 2)


@pytest.mark.parametrize("optimizer", [ServerSGD(), ServerSGD(momentum=0.9)], ids=repr)
def test_if_all_are_dropped_nothing_moves(optimizer, caplog):
    stage = stage_with(optimizer=optimizer)
    here = server(Schedule(base=stage), held=buffers([0.5], [2]))
    if optimizer.momentum:
        exchange(here, GOOD)
    before = {name: tensor.clone() for name, tensor in here.state().items()}
    report = here.exchange(stage.exchanges[0], [broken(kind) for kind in REASONS], len(REASONS))
    assert caplog.records[-1].levelno == logging.WARNING
    assert caplog.messages[-1] == "no client's update could be used: the model stays as it is"
    assert {name: tensor.tolist() for name, tensor in before.items()} == {
        name: tensor.tolist() for name, tensor in here.state().items()
    }
    assert (report.used, report.train_loss, report.similarity, report.agreement) == (0, None, None, None)
    assert len(report.dropped) == len(REASONS)


def test_no_answers_at_all_are_no_error():
    here = server()
    assert here.exchange(Exchange(), [], 0).used == 0
    assert torch.equal(here.vector, THETA)


@pytest.mark.parametrize("kind", ["nan", "inf", "-inf", "buffers", "2e15"])
def test_raise_stops_the_run_in_one_line(kind):
    with pytest.raises(ClientError, match=rf"client 9 .*{re.escape(REASONS[kind])}") as caught:
        server(guard=Guard(nonfinite="raise"), held=buffers([1.0], [1])).exchange(
            Exchange(), [*updates(GOOD), broken(kind)], 3
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["shape", "nothing", "no examples", "failure"])
@pytest.mark.parametrize("policy", ["raise", "zero_coord"])
def test_other_mistakes_are_dropped_under_every_policy(kind, policy):
    here = server(guard=Guard(nonfinite=policy), held=buffers([1.0], [1]))
    report = here.exchange(Exchange(), [*updates(GOOD), broken(kind)], 3)
    assert report.dropped == [Dropped(9, REASONS[kind])]


@pytest.mark.parametrize("kind", ["nan", "inf", "-inf", "2e15"])
def test_zero_coord_mends_the_coordinate_and_keeps_the_client(kind):
    here = server(guard=Guard(nonfinite="zero_coord"), held=buffers([1.0], [1]))
    report = here.exchange(Exchange(), [*updates(GOOD), broken(kind)], 3)
    assert (report.used, report.dropped) == (3, [])
    assert torch.equal(here.vector, THETA + torch.tensor([6.0, 6, 4, 6, 6, 6]) / 3)


def test_zero_coord_leaves_out_broken_statistics():
    """A running variance of zero would be worse than none."""
    here = server(held=buffers([9.0], [9]), guard=Guard(nonfinite="zero_coord"))
    sent = [*updates(GOOD, held=[buffers([2.0], [1]), buffers([4.0], [2])]), broken("buffers")]
    report = here.exchange(Exchange(), sent, 3)
    assert (report.used, here.buffers.floats.tolist(), here.buffers.integers.tolist()) == (3, [3.0], [2])
    assert torch.equal(here.vector, THETA + 2)


def test_zero_coord_with_nobodys_statistics_keeps_the_servers():
    here = server(held=buffers([9.0], [9]), guard=Guard(nonfinite="zero_coord"))
    here.exchange(Exchange(), [broken("buffers")], 1)
    assert (here.buffers.floats.tolist(), here.buffers.integers.tolist()) == ([9.0], [9])


@pytest.mark.parametrize("held", [buffers([1.0, 2.0], [1]), buffers([], [1]), buffers([1.0], [1, 2])], ids=str)
@pytest.mark.parametrize("position", [0, 2])
def test_statistics_of_the_wrong_size_drop_the_client(held, position):
    here = server(held=buffers([0.0], [0]))
    sent = updates(GOOD, held=[buffers([1.0], [1])] * 2)
    sent.insert(position, Update(9, torch.ones(6), 10, {"loss": 1.0}, held))
    report = here.exchange(Exchange(), sent, 3)
    assert [drop.client for drop in report.dropped] == [9]
    assert torch.equal(here.vector, THETA + 2)


def test_a_finite_client_passes_untouched():
    update = updates(GOOD)[0]
    assert Guard().reason_to_drop(update, 6) is None
    assert torch.equal(update.vector, GOOD[0])


# The model stays finite -----------------------------------------------------------------------------------------------

HUGE = torch.full((6,), 3.3e38)
EXPLODING = [ServerSGD(lr=1e38), ServerSGD(lr=1e38, momentum=0.9), ServerAdam(lr=1e38, beta2=0.9999)]


def values(here):
    return {name: tensor.tolist() for name, tensor in here.state().items()}


@pytest.mark.parametrize("name", rules.names())
@pytest.mark.parametrize("optimizer", [ServerSGD(), ServerSGD(momentum=0.9), ServerAdam()], ids=repr)
def test_two_updates_whose_sum_overflows_do_not_reach_the_model(name, optimizer):
    here = server()
    sent = [*updates(GOOD), Update(2, HUGE.clone(), 10), Update(3, HUGE.clone(), 10)]
    report = here.exchange(Exchange(rule=name, optimizer=optimizer), sent, 4)
    assert [(drop.client, drop.reason) for drop in report.dropped] == [(c, "larger than 1e+15") for c in (2, 3)]
    assert (report.used, report.still) == (2, None)
    assert all(tensor.isfinite().all() for tensor in here.state().values())
    assert not torch.equal(here.vector, THETA)


@pytest.mark.parametrize("optimizer", EXPLODING, ids=repr)
@pytest.mark.parametrize("mask_at", ["post", "pre"])
def test_a_step_that_would_not_be_finite_is_not_taken(optimizer, mask_at, caplog):
    here = server(held=buffers([1.0], [1]))
    how = Exchange(optimizer=optimizer, rule="masked", mask_at=mask_at)
    before = values(here)
    sent = updates(torch.full((2, 6), 1e10), held=[buffers([5.0], [5])] * 2)
    assert here.exchange(how, sent, 2).still == "the step would not have been finite"
    assert values(here) == before
    assert caplog.messages[-1] == "the step would not have been finite: the model stays as it is"


@pytest.mark.parametrize("optimizer", [ServerSGD(momentum=0.9), ServerAdam(), ServerYogi(), ServerAdagrad()], ids=repr)
def test_of_a_step_that_was_not_taken_nothing_is_remembered(optimizer):
    vector, state = THETA.clone(), {}
    optimizer.step(vector, GOOD[0], state)
    taken, remembered = vector.clone(), {name: tensor.clone() for name, tensor in state.items()}
    assert optimizer.step(vector, torch.full((6,), NAN), state) == "the step would not have been finite"
    assert torch.equal(vector, taken)
    assert state.keys() == remembered.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in remembered.items())
    assert optimizer.step(vector, GOOD[0], state) is None


def test_state_that_overflows_is_not_kept_though_the_step_is_finite():
    """Adam's second moment is infinite before its step is anything but zero."""
    vector, state = THETA.clone(), {}
    assert ServerAdam().step(vector, torch.full((6,), 1e30), state) == "the step would not have been finite"
    assert (state, vector.tolist()) == ({}, THETA.tolist())


def test_a_round_says_why_the_model_stayed_as_it_was():
    here = server()
    assert exchange(here, torch.zeros(2, 6)).still == "the step changed nothing"
    assert exchange(here, GOOD).still is None
    assert here.exchange(Exchange(), [broken("nan")], 1).still == "no update could be used"
    assert play_round(here, fails=(0, 1))[0].still == "no update could be used"
    assert play_round(here)[0].still is None


def test_a_frozen_model_stands_still():
    here = server()
    here.load_state({**here.state(), "frozen": torch.ones(6, dtype=torch.bool)})
    assert exchange(here, GOOD).still == "the step changed nothing"


def test_a_round_that_moved_in_one_of_its_exchanges_did_not_stand_still():
    both = Schedule(base=Stage(exchanges=(Exchange(), Exchange(optimizer=ServerSGD(lr=1e-30)))))
    assert play_round(server(both))[0].still is None


def test_nothing_shared_is_no_standstill():
    here = server(layout=Layout((), ()), vector=torch.zeros(0))
    assert here.exchange(Exchange(), [Update(0, torch.zeros(0), 1)], 1).still is None


# Patience -------------------------------------------------------------------------------------------------------------


def rounds(*kinds):
    dropped = [Dropped(3, "not finite")]
    table = {
        "unused": {"dropped": dropped, "still": "no update could be used"},
        "still": {"used": 2, "still": "the step changed nothing"},
        "moved": {"used": 2},
        "searched": {},
    }
    return [RoundReport(round=number, **table[kind]) for number, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "total", "reason"),
    [
        (["unused"] * 3, 9, "no update could be used in 3 rounds; the first one: not finite"),
        (["moved", *["unused"] * 3], 9, "no update could be used in 3 rounds; the first one: not finite"),
        (["unused"] * 2, 9, None),
        (["unused"] * 2, 2, "no update could be used in 2 rounds; the first one: not finite"),
        (["moved", "unused"], 2, None),
        (["still"] * 3, 9, "the model has not changed in 3 rounds: the step changed nothing"),
        (["unused", "still", "unused"], 9, "the model has not changed in 3 rounds: no update could be used"),
        (["still"] * 2, 2, None),
        (["still", "moved", "still"], 9, None),
        (["searched"] * 3, 9, None),
        ([], 9, None),
    ],
)
def test_patience_ends_with_a_reason(kinds, total, reason):
    assert Guard(patience=3).reason_to_stop(rounds(*kinds), total) == reason
