"""What a client can get wrong never stops the round."""

import logging

import pytest
import torch

from fedpace.aggregation import Dampened, rules
from fedpace.core import ClientError, Dropped, Update
from fedpace.server import Exchange, Guard, Schedule, ServerSGD
from tests.stages import stage_with

from .helpers import THETA, buffers, exchange, server, updates

NAN, INF = float("nan"), float("inf")
GOOD = torch.tensor([[1.0, 1, 1, 1, 1, 1], [3.0, 3, 3, 3, 3, 3]])


def broken(kind):
    update = Update(9, torch.full((6,), 2.0), 10, {"loss": 9.0}, buffers([1.0], [1]))
    if kind in ("nan", "inf", "-inf"):
        update.vector[2] = float(kind)
    elif kind == "buffers":
        update.buffers.floats[0] = INF
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


@pytest.mark.parametrize("kind", ["nan", "inf", "-inf", "buffers"])
def test_raise_stops_the_run_in_one_line(kind):
    with pytest.raises(ClientError, match=r"client 9 .*not finite") as caught:
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


@pytest.mark.parametrize("kind", ["nan", "inf", "-inf"])
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
