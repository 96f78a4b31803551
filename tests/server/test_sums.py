"""Steps from sums of updates: as if the server had seen each of them."""

import pytest
import torch

from fedpace.aggregation import Sums
from fedpace.core import ConfigError, Dropped, Layout, ServerSide, Update
from fedpace.server import Collected, Exchange, Guard, Pace, Pruning, Schedule, Weighing
from fedpace.server.annealing import Annealing
from tests.server.helpers import LAYOUT, THETA, buffers, columns, exchange, server
from tests.stages import stage_with

ROWS = columns((1, 1, -3), (2, 2, 2), (0, 0, 0), (-1, 0, 0), (1, -1, 0), (0.5, 0.25, -1))


def collected(rows, examples=None, **parts):
    """What a secure exchange would show of these updates."""
    weights = torch.tensor(examples or [1] * len(rows), dtype=torch.float64)
    total, signs = (rows.double() * weights[:, None]).sum(0), torch.sign(rows).sum(0).long()
    return Collected(
        [Update(i) for i in range(len(rows))], Sums(total, signs, len(rows), float(weights.sum())), **parts
    )


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("rule", ["mean", "masked", "and_mask", "dampened"])
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


@pytest.mark.parametrize("rule", ["harmonised", "conflict_free", "projected", "elected", "magnitude_dampened"])
def test_rules_that_need_each_update_are_refused(rule):
    with pytest.raises(
        ConfigError, match=f"rule '{rule}' needs each client's own update; rules that work: and_mask, da"
    ):
        server(Schedule(base=stage_with(rule=rule))).check_sums(5)


class Side(ServerSide):
    def learn(self, update):
        """Never asked."""


@pytest.mark.parametrize(
    ("stage", "options", "clients", "reason"),
    [
        ({"rule": {"name": "masked", "agreement_weights": "samples"}}, {}, 5, "needs signs that are weighted by sampl"),
        ({"rule": "elected"}, {}, 5, "rule 'elected' needs each client's own update"),
        ({"search": Annealing()}, {}, 5, "a search needs each client's own gradient"),
        ({"pace": Pace()}, {}, 5, "a pace needs the size of each client's own update"),
        ({}, {"server_side": Side({}, {})}, 5, "the server's side of this client work"),
        ({}, {"buffer_policy": "first"}, 5, "buffers = 'first' are one client's own"),
        ({}, {"guard": Guard(nonfinite="zero_coord")}, 5, "found 'zero_coord'"),
        ({}, {"guard": Guard(clip="fixed", growth=2)}, 5, "expected no guard.clip, growth"),
        ({}, {"ruled": Layout(LAYOUT.names[:1], LAYOUT.shapes[:1])}, 5, "one weighting of the whole model"),
        ({}, {}, 2, "expected at least 3 clients in a round, found 2"),
    ],
)
def test_what_sums_do_not_tell_is_refused(stage, options, clients, reason):
    with pytest.raises(ConfigError, match=reason):
        server(Schedule(base=stage_with(**stage)), **options).check_sums(clients)


@pytest.mark.parametrize("rule", ["mean", "masked", "and_mask", "dampened"])
def test_what_sums_tell_is_not_refused(rule):
    server(Schedule(base=stage_with(rule=rule, counts=True, prunes=True), pruning=Pruning())).check_sums(3)
