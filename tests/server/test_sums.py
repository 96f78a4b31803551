"""Steps from sums of updates: as if the server had seen each of them."""

from dataclasses import replace

import pytest
import torch

from fedpace.aggregation import Sums
from fedpace.core import ConfigError, Dropped, Layout, ServerSide, Update
from fedpace.server import Collected, Exchange, Freezing, Guard, Pace, Pruning, Schedule, Secure, Weighing
from fedpace.server.annealing import Annealing
from tests.server.helpers import LAYOUT, THETA, buffers, columns, exchange, server
from tests.stages import stage_with

AGREEING = [
    "masked",
    "and_mask",
    "dampened",
    "magnitude_dampened",
    {"name": "masked", "agreement_weights": "samples"},
]
ROWS = columns((1, 1, -3), (2, 2, 2), (0, 0, 0), (-1, 0, 0), (1, -1, 0), (0.5, 0.25, -1))


def collected(rows, examples=None, **parts):
    """What a secure exchange would show of these updates."""
    weights = torch.tensor(examples or [1] * len(rows), dtype=torch.float64)
    weighted, signs = rows.double() * weights[:, None], torch.sign(rows)
    votes, sizes = (signs * weights[:, None]).sum(0), weighted.abs().sum(0)
    found = Sums(weighted.sum(0), signs.sum(0).long(), len(rows), float(weights.sum()), votes, sizes)
    return Collected([Update(i) for i in range(len(rows))], found, **parts)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("rule", ["mean", *AGREEING])
def test_step_from_sums_is_the_step_from_updates(rule, weights):
    stage = stage_with(rule=rule, weights=weights)
    examples = [10, 30, 20]
    plain, secret = server(Schedule(base=stage)), server(Schedule(base=stage))
    seen = exchange(plain, ROWS, examples=examples)
    report = secret.exchange_sums(
        stage.exchanges[0], collected(ROWS, examples if weights == "samples" else None, clipped=2), 3
    )
    assert torch.allclose(secret.vector, plain.vector)
    assert report.agreement == seen.agreement
    assert report.diagnostics == pytest.approx(seen.diagnostics)
    assert (report.used, report.clipped, report.similarity) == (3, 2, None)


def test_conflicts_are_told_from_sums_but_for_updates_that_cancel_out():
    """Coordinates: conflict, agreement, nobody, agreement, exact cancellation (taken for nobody), conflict."""
    stage = stage_with(counts=True)
    schedule = Schedule(base=stage, pruning=Pruning(threshold=0.34, persistence=9))
    plain, secret = server(schedule), server(schedule)
    exchange(plain, ROWS)
    secret.exchange_sums(stage.exchanges[0], collected(ROWS), 3)
    assert plain.pruner.counters.tolist() == [1, 0, 0, 1, 1, 1]
    assert secret.pruner.counters.tolist() == [1, 0, 0, 1, 0, 1]


def test_means_of_buffers_are_taken_over():
    held = buffers((1.0, 2.0), (3,))
    to = server(held=held)
    to.exchange_sums(Exchange(), collected(ROWS, buffers=buffers((5.0, 6.0), (7,))), 3)
    assert to.buffers.floats.tolist() == [5.0, 6.0]
    assert to.buffers.integers.tolist() == [7]


def test_without_sums_the_model_stays_and_nobody_was_heard(caplog):
    to, kept = server(), []
    silent = Collected([Update(0), Update(1, failure="no answer")], ended="too few")
    report = to.exchange_sums(Exchange(), silent, 2, kept.append)
    assert torch.equal(to.vector, THETA)
    assert (report.used, report.answered, kept) == (0, 1, [])
    assert report.dropped == [Dropped(1, "no answer")]
    assert caplog.messages[-1] == "too few: the model stays as it is"


def test_only_clients_that_were_summed_are_accepted():
    to, kept = server(), []
    found = collected(ROWS)
    to.exchange_sums(Exchange(), Collected([*found.clients, Update(9, failure="lost")], found.sums), 4, kept.append)
    assert [update.client for update in kept] == [0, 1, 2]


@pytest.mark.parametrize(
    ("sends", "policy", "floats", "expected"),
    [
        ("update", "weighted_mean", (1.0,), "samples"),
        ("update", "mean", (1.0,), "uniform"),
        ("update", "local", (1.0,), None),
        ("update", "keep_server", (1.0,), None),
        ("update", "mean", (), None),
        ("gradient", "mean", (1.0,), None),
    ],
)
def test_buffers_are_summed_as_their_policy_says(sends, policy, floats, expected):
    to = server(held=buffers(floats), buffer_policy=policy)
    assert to.weighing(Exchange(sends=sends, weights="samples")) == Weighing("samples", expected)


@pytest.mark.parametrize("rule", ["harmonised", "conflict_free", "projected", "elected"])
def test_rules_that_need_each_update_are_refused(rule):
    with pytest.raises(
        ConfigError, match=f"rule '{rule}' needs each client's own update; rules that work: and_mask, da"
    ):
        server(Schedule(base=stage_with(rule=rule))).check_sums(5, Secure())


class Side(ServerSide):
    def learn(self, update):
        """Never asked."""


@pytest.mark.parametrize(
    ("stage", "options", "clients", "reason"),
    [
        ({"rule": "elected"}, {}, 5, "rule 'elected' needs each client's own update"),
        ({"search": Annealing()}, {}, 5, "a search needs each client's own gradient"),
        ({}, {"server_side": Side({}, {})}, 5, "the server's side of this client work"),
        ({}, {"buffer_policy": "first"}, 5, "buffers = 'first' are one client's own"),
        ({}, {"guard": Guard(nonfinite="zero_coord")}, 5, "found 'zero_coord'"),
        ({}, {"guard": Guard(clip="fixed", growth=2)}, 5, "expected no guard.clip, growth"),
        ({}, {"ruled": Layout(LAYOUT.names[:1], LAYOUT.shapes[:1])}, 5, "one weighting of the whole model"),
        ({}, {}, 2, "expected at least 3 clients in a round, found 2"),
        ({"rule": "masked"}, {}, 4, "it sums signs, which tell .* at least 5 clients in a round, found 4"),
        ({"pace": Pace()}, {}, 4, "it sums sizes, which tell each client's sign where all agree"),
        ({"counts": True}, {}, 4, "it sums signs"),
    ],
)
def test_what_sums_do_not_tell_is_refused(stage, options, clients, reason):
    with pytest.raises(ConfigError, match=reason):
        server(Schedule(base=stage_with(**stage)), **options).check_sums(clients, Secure())


@pytest.mark.parametrize("rule", ["mean", *AGREEING])
def test_what_sums_tell_is_not_refused(rule):
    schedule = Schedule(base=stage_with(rule=rule, counts=True, prunes=True, pace=Pace()), pruning=Pruning())
    server(schedule).check_sums(5, Secure())
    server(schedule).check_sums(3, Secure(fewest_agreeing=3))


def test_the_minimum_of_clients_is_the_users_to_raise():
    with pytest.raises(ConfigError, match="expected at least 7 clients in a round, found 6"):
        server().check_sums(6, Secure(fewest=7))
    assert Secure(fewest=7).least(()) == 7
    assert Secure(fewest=7).least(("signs",)) == 7
    assert Secure().counts(9) == (9, 6)
    assert Secure().counts(6, ("signs",)) == (6, 5)


@pytest.mark.parametrize(
    ("exchange", "asked"),
    [
        ({}, ()),
        ({"rule": "masked"}, ("signs",)),
        ({"rule": {"name": "masked", "agreement_weights": "samples"}}, ("signs", "votes")),
        ({"rule": "magnitude_dampened"}, ("sizes",)),
        ({"pace": Pace()}, ("sizes",)),
        ({"counts": True}, ("signs",)),
        ({"rule": "dampened", "prunes": True, "pace": Pace()}, ("signs", "sizes")),
    ],
)
def test_nothing_is_asked_for_that_is_not_needed(exchange, asked):
    assert server().weighing(Exchange(**exchange)).asked == asked


def test_a_rule_that_needs_no_signs_does_without():
    to, found = server(), collected(ROWS)
    report = to.exchange_sums(Exchange(), Collected(found.clients, replace(found.sums, signs=None, votes=None)), 3)
    assert (report.used, report.agreement) == (3, None)
    assert not torch.equal(to.vector, THETA)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_pace_and_freezing_from_sums_are_those_from_updates(weights):
    stage = stage_with(pace=Pace(), freezes=Freezing(share=0.5, per_round=0.2), weights=weights)
    examples = [10, 30, 20]
    plain, secret = server(Schedule(base=stage)), server(Schedule(base=stage))
    for factor in (1.0, -0.5, 2.0):
        rows = ROWS * factor + factor
        exchange(plain, rows, examples=examples)
        shown = collected(rows, examples if weights == "samples" else None)
        secret.exchange_sums(stage.exchanges[0], shown, 3)
        torch.testing.assert_close(
            secret.extras(stage.exchanges[0])["pace"], plain.extras(stage.exchanges[0])["pace"], rtol=1e-5, atol=1e-6
        )
        assert secret.frozen == plain.frozen
    assert plain.frozen > 0
    torch.testing.assert_close(secret.vector, plain.vector)
