"""A round as a conversation: what is asked, in which order, and what it costs, counted by hand."""

import itertools

import pytest
import torch

from fedpace.aggregation import Bucketing
from fedpace.core import Layout, Update
from fedpace.server import (
    Annealing,
    AskProbes,
    AskSums,
    AskUpdates,
    Exchange,
    Freezing,
    Pace,
    Round,
    Schedule,
    ServerSGD,
    Stage,
)
from fedpace.server.annealing import StaleSum
from fedpace.wire import BF16, Float32, Int8, Signs
from tests.stages import stage_with

from .helpers import LAYOUT, THETA, buffers, play_round, server, updates

D, FLOATS, INTEGERS, N = 6, 3, 1, 5
B = FLOATS + INTEGERS
SEEDS = 2 * 2  # two candidates, whose seeds take 8 bytes each
GRADIENT = Exchange(sends="gradient")
ENDING = Annealing(k=2, after="nothing")


def with_statistics(stage, policy="weighted_mean", layout=LAYOUT):
    vector = torch.ones(layout.size)
    return server(Schedule(base=stage), vector, layout, buffers([0.0] * FLOATS, [0] * INTEGERS), buffer_policy=policy)


@pytest.mark.parametrize(
    ("stage", "policy", "up", "down"),
    [
        (stage_with(), "weighted_mean", D + B, D + B),
        (stage_with(), "mean", D + B, D + B),
        (stage_with(), "first", D + B, D + B),
        (stage_with(), "keep_server", D, D + B),  # clients need the statistics, the server does not take theirs
        (stage_with(), "local", D, D),
        (Stage(exchanges=(GRADIENT,)), "weighted_mean", D, D + B),
        (Stage(exchanges=(GRADIENT,)), "local", D, D),
        # A gradient and a loss at θ, then at two candidates, which travel as seeds beside the model; then FedAvg.
        (stage_with(search=Annealing(k=2)), "weighted_mean", 3 * (D + 1) + D + B, 2 * (D + B) + SEEDS + D + B),
        (stage_with(search=Annealing(k=2)), "keep_server", 3 * (D + 1) + D, 2 * (D + B) + SEEDS + D + B),
        (stage_with(search=Annealing(k=2)), "local", 3 * (D + 1) + D, 2 * D + SEEDS + D),
        (stage_with(search=ENDING), "mean", 3 * (D + 1), 2 * (D + B) + SEEDS),
        (stage_with(search=Annealing(k=2, after=StaleSum())), "mean", 3 * (D + 1), 2 * (D + B) + SEEDS),
        (stage_with(search=Annealing(k=0)), "mean", D + B, D + B),
        # Two exchanges in a round.
        (Stage(exchanges=(GRADIENT, Exchange())), "mean", D + D + B, 2 * (D + B)),
        (Stage(search=ENDING, exchanges=(Exchange(), GRADIENT)), "mean", 3 * (D + 1) + D, 3 * (D + B) + SEEDS),
    ],
)
def test_bytes_of_a_round(stage, policy, up, down):
    report, _ = play_round(with_statistics(stage, policy), clients=N)
    assert (report.bytes_up, report.bytes_down) == (4 * N * up, 4 * N * down)


@pytest.mark.parametrize("wire", [Float32(), BF16(), Int8(block=4), Signs(block=4)], ids=repr)
def test_vectors_of_clients_take_the_bytes_of_their_format(wire):
    """Statistics, gradients of probes and whatever goes to clients take 4 bytes a number, whatever the format."""
    base = Stage(search=Annealing(k=2), exchanges=(Exchange(), GRADIENT))
    report, _ = play_round(with_statistics(base, "mean"), clients=N, fails=(1,), wire=wire)
    assert report.bytes_up == (N - 1) * (3 * 4 * (D + 1) + 2 * wire.bytes_for(D) + 4 * B)
    assert report.bytes_down == 4 * N * (4 * (D + B) + SEEDS)


@pytest.mark.parametrize("wire", [Float32(), Int8(block=4), Signs(block=4)], ids=repr)
def test_frozen_coordinates_take_no_bytes(wire):
    freezes = Freezing(share=0.5, per_round=0.5)
    here = server(Schedule(base=stage_with(pace=Pace(), freezes=freezes)))
    first, second = (play_round(here, number, clients=N, wire=wire)[0] for number in range(2))
    assert (first.bytes_up, second.bytes_up) == (N * wire.bytes_for(D), N * wire.bytes_for(D // 2))


def test_the_papers_search_sends_nine_gradients():
    """1.8: 9 d floats, 3.4 MB, at d = 94,986 and K = 8."""
    layout = Layout(("all",), ((94_986,),))
    here = server(Schedule(base=stage_with(search=Annealing(after="nothing"))), torch.ones(layout.size), layout)
    report, _ = play_round(here)
    assert report.bytes_up == 2 * 4 * 9 * (94_986 + 1)
    assert report.bytes_up / 2 / 1e6 == pytest.approx(3.4, abs=0.05)


def test_who_fails_sends_nothing():
    whole, _ = play_round(with_statistics(stage_with()), clients=4)
    report, _ = play_round(with_statistics(stage_with()), clients=4, fails=[1, 2])
    assert (report.bytes_up, report.bytes_down) == (whole.bytes_up // 2, whole.bytes_down)
    assert [(dropped.client, dropped.reason) for dropped in report.dropped] == [(1, "broken"), (2, "broken")]
    assert (report.used, report.cohort) == (2, [0, 1, 2, 3])


def test_no_clients_no_bytes():
    report, _ = play_round(with_statistics(stage_with(search=Annealing(k=2))), clients=0)
    assert (report.bytes_up, report.bytes_down, report.used) == (0, 0, 0)


def test_a_search_that_is_skipped_is_followed_by_training_which_is_counted():
    stage = stage_with(search=ENDING)
    report, asked = play_round(with_statistics(stage), clients=4, fails=[1, 2, 3])
    assert [type(question) for question in asked] == [AskProbes, AskUpdates]
    assert report.search is None
    assert report.bytes_up == 4 * ((D + 1) + D + B)
    assert report.bytes_down == 4 * 4 * 2 * (D + B)


def test_a_search_may_take_the_place_of_the_first_exchange():
    stage = Stage(search=ENDING, exchanges=(Exchange(), GRADIENT))
    report, asked = play_round(with_statistics(stage))
    assert [type(question) for question in asked] == [AskProbes, AskProbes, AskUpdates]
    assert [list(question.paths) for question in asked[:1]] == [[()]]
    assert len(asked[1].paths) == 2
    assert (asked[2].number, asked[2].exchange) == (1, GRADIENT)
    assert report.search.candidates == 2


def test_without_an_exchange_the_similarity_is_that_of_the_probes():
    report, _ = play_round(with_statistics(stage_with(search=ENDING)))
    assert (report.similarity.kind, report.similarity.mean) == ("probe", pytest.approx(1.0))


def test_each_exchange_starts_where_the_one_before_it_ended():
    _, asked = play_round(server(Schedule(base=Stage(exchanges=(Exchange(), Exchange())))))
    assert torch.equal(asked[0].vector, THETA + 2)  # moved in place by both steps: whoever keeps it copies it
    assert asked[1].vector is asked[0].vector


def test_if_all_fail_the_first_reason_is_told_and_the_model_stays():
    here = server()
    under_way = Round(here, 0, [0, 1], 0)
    for question in under_way:
        question.answer([Update(0, failure="no data"), Update(1, failure="no power")])
    assert under_way.failure == "no data"
    assert torch.equal(here.vector, THETA)


def test_one_failure_is_no_failure_of_the_round():
    under_way = Round(server(), 0, [0, 1], 0)
    for question in under_way:
        question.answer([Update(0, failure="no data"), Update(1, torch.ones(6), 1)])
    assert under_way.failure is None


def test_an_unanswered_question_is_a_mistake_of_the_carrier():
    questions = iter(Round(server(), 0, [0], 0))
    next(questions)
    with pytest.raises(RuntimeError, match="AskUpdates was not answered"):
        next(questions)


def test_the_model_goes_to_those_who_begin_and_updates_come_from_the_cohort():
    report, (question,) = play_round(with_statistics(stage_with()), clients=2, begun=[4, 5, 6])
    assert (report.cohort, question.clients) == ([0, 1], [0, 1])
    assert (report.bytes_up, report.bytes_down) == (4 * 2 * (D + B), 4 * 3 * (D + B))


def test_a_secure_round_asks_for_sums():
    question = next(iter(Round(server(), 0, [0, 1, 2], 0, secure=True)))
    assert isinstance(question, AskSums)
    assert question.weighing.updates == "samples"


def test_a_rule_draws_anew_in_each_round_and_exchange_of_a_run():
    drawing = Exchange(rule=Bucketing(rule="median"))

    def after(rounds, seed):
        here, generator = server(Schedule(base=Stage(exchanges=(drawing, drawing)))), torch.Generator().manual_seed(0)
        rows, seen = torch.randn(8, D, generator=generator), [THETA]
        for number in rounds:
            for question in Round(here, number, range(8), seed):
                question.answer(updates(rows))
                seen.append(here.vector.clone())
            seen.append(here.vector.clone())
        return [(b - a).round(decimals=5).tolist() for a, b in itertools.pairwise(seen) if not torch.equal(a, b)]

    steps = after((0, 1), seed=0)
    assert len({tuple(step) for step in steps}) == 4
    assert steps == after((0, 1), seed=0)
    assert steps != after((0, 1), seed=1)


@pytest.mark.parametrize(("beta", "still"), [(-9.0, None), (9.0, "the step changed nothing")])
def test_a_round_whose_search_moved_the_model_did_not_stand_still(beta, still):
    search = Annealing(k=1, accept={"beta": beta, "delta": 9.0})
    here = server(Schedule(base=stage_with(search=search, optimizer=ServerSGD(lr=1e-30))))
    report, _ = play_round(here)
    assert report.search.accepted == (beta < 0) == (not torch.equal(here.vector, THETA))
    assert report.still == still
