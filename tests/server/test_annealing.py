"""The search as a whole: with clients by formula, and with clients that have data."""

import copy
from math import cos, inf, nan, sin

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedpace import client
from fedpace.core import FlatModule, Layout, Perturbation, Update, derive
from fedpace.data import load
from fedpace.server import Annealing, Pruning, Schedule
from fedpace.server.annealing import InterClient, Lenient, Margin, RandomWalk, Ratchet, SelfSimilarity, StaleSum
from tests.stages import stage_with

from .helpers import LAYOUT, THETA, columns, exchange, replied, server

SEED = 5
WIDE = Perturbation(rho=0.1)


def candidate_path(k):
    return (derive(SEED, "perturbation", k),)


def scripted(sims, losses=None, sim0=0.0, loss0=1.0):
    """Two clients whose gradients enclose the k-th angle; ``asked`` counts the paths."""
    sims, losses = [sim0, *sims], [loss0, *(losses or [loss0] * len(sims))]
    asked = []

    def probe(paths):
        for path in paths:
            k = len(asked)
            asked.append(path)
            angle = torch.tensor(sims[k]).acos().item()
            rows = torch.zeros(2, 6)
            rows[0, 0], rows[1, 0], rows[1, 1] = 1.0, cos(angle), sin(angle)
            yield [Update(i, row, 10, {"loss": losses[k]}) for i, row in enumerate(rows)]

    return probe, asked


class Bowls:
    """Clients with quadratic losses around centres of their own: cosines really depend on the point."""

    def __init__(self, clients=3, seed=0, perturbation=WIDE):
        generator = torch.Generator().manual_seed(seed)
        self.centres = THETA + torch.randn(clients, 6, generator=generator)
        self.perturbation = perturbation
        self.fails = set()  # pairs of client and path
        self.asked = []

    def gradients(self, point):
        return point - self.centres

    def __call__(self, paths):
        for path in paths:
            self.asked.append(path)
            point = self.perturbation.follow(THETA, LAYOUT, path)
            yield [
                Update(i, -g, 10, {"loss": float(g.square().sum() / 2)})
                for i, g in enumerate(self.gradients(point))
                if (i, path) not in self.fails
            ]


def run(annealing, probe, vector=THETA):
    return replied(annealing.search(vector.clone(), LAYOUT, SEED), probe)


def mean_cosine(rows):
    pairs = [
        torch.cosine_similarity(rows[i].double(), rows[j].double(), dim=0) for i in range(len(rows)) for j in range(i)
    ]
    return float(sum(pairs) / len(pairs))


# Nothing found -------------------------------------------------------------------------------------------------------


def test_without_candidates_nobody_is_asked():
    bowls = Bowls()
    found, report = run(Annealing(k=0), bowls)
    assert torch.equal(found, THETA)
    assert report is None
    assert bowls.asked == []


@pytest.mark.parametrize("walk", ["best", "ratchet", "random_walk"])
def test_an_impossible_margin_returns_the_vector_bitwise(walk):
    search = Annealing(k=6, perturbation=WIDE, walk=walk, accept=Margin(beta=0.0, delta=-inf))
    found, report = run(search, Bowls())
    assert torch.equal(found, THETA)
    assert (report.accepted, report.candidates, report.gain) == (False, 6, 0.0)


@pytest.mark.parametrize("clients", [0, 1])
def test_fewer_than_two_clients_skip_the_search(clients):
    bowls = Bowls(clients)
    found, report = run(Annealing(k=3), bowls)
    assert torch.equal(found, THETA)
    assert report is None
    assert bowls.asked == [()]


def test_if_all_but_one_fail_at_the_start_the_search_is_skipped():
    bowls = Bowls(3)
    bowls.fails = {(0, ()), (2, ())}
    assert run(Annealing(k=3), bowls)[1] is None


# What is found -------------------------------------------------------------------------------------------------------


def test_the_report_is_what_can_be_computed_by_hand():
    bowls = Bowls()
    search = Annealing(k=5, perturbation=WIDE, accept=Margin(beta=0.0, delta=inf))
    found, report = run(search, bowls)
    points = [WIDE.follow(THETA, LAYOUT, candidate_path(k)) for k in range(5)]
    sims = [mean_cosine(bowls.gradients(point)) for point in points]
    sim0, best = mean_cosine(bowls.gradients(THETA)), max(range(5), key=lambda k: sims[k])
    assert report.accepted
    assert torch.equal(found, points[best])
    assert report.sim0 == report.probe_mean == pytest.approx(sim0, abs=1e-6)
    assert report.sim_best == pytest.approx(sims[best], abs=1e-6)
    assert report.gain == pytest.approx(sims[best] - sim0, abs=1e-6)
    assert report.loss0 == pytest.approx(float(bowls.gradients(THETA).square().sum() / 6), rel=1e-5)
    assert report.loss_best == pytest.approx(float(bowls.gradients(points[best]).square().sum() / 6), rel=1e-5)
    assert report.probe_min <= report.probe_mean
    assert bowls.asked == [(), *(candidate_path(k) for k in range(5))]
    assert report.accepted is True


@given(st.integers(0, 500), st.sampled_from(["best", "ratchet", "random_walk"]), st.floats(0, 0.3))
def test_what_is_accepted_gains_the_margin_and_keeps_the_loss(seed, walk, beta):
    bowls = Bowls(seed=seed)
    accept = Margin(beta=beta, delta=0.5)
    found, report = run(Annealing(k=6, perturbation=WIDE, walk=walk, accept=accept), bowls)
    assert report.accepted == (not torch.equal(found, THETA))
    if report.accepted:
        assert report.sim_best >= report.sim0 + beta
        assert report.gain == report.sim_best - report.sim0
        assert mean_cosine(bowls.gradients(found)) == pytest.approx(report.sim_best, abs=1e-6)
        if walk != "random_walk":  # whose reference moves
            assert report.loss_best - report.loss0 < 0.5


def test_the_walk_decides():
    sims = [0.4, 0.6]
    for walk, k in (("best", 1), ("ratchet", 0)):
        probe, _ = scripted(sims)
        found, report = run(Annealing(k=2, perturbation=WIDE, walk=walk), probe)
        assert torch.equal(found, WIDE.follow(THETA, LAYOUT, candidate_path(k)))
        assert report.sim_best == pytest.approx(sims[k], abs=1e-6)


def test_a_random_walk_arrives_where_its_path_leads():
    probe, asked = scripted([0.1, 0.5])
    found, report = run(Annealing(k=2, perturbation=WIDE, walk=RandomWalk()), probe)
    path = candidate_path(0) + candidate_path(1)
    assert asked == [(), candidate_path(0), path]
    assert report.accepted
    assert torch.equal(found, WIDE.follow(THETA, LAYOUT, path))


def test_the_best_rejected_candidate_is_reported():
    """The warning "largest gain …" needs it."""
    probe, _ = scripted([0.1, 0.25, -0.5], sim0=0.0)
    _, report = run(Annealing(k=3), probe)
    assert (report.accepted, report.gain) == (False, 0.0)
    assert report.sim_best == pytest.approx(0.25, abs=1e-6)


def test_the_same_seed_finds_the_same_point():
    search = Annealing(k=6, perturbation=WIDE, accept=Margin(beta=0.0, delta=inf))
    one, two = (run(search, Bowls())[0] for _ in range(2))
    other, _ = replied(search.search(THETA.clone(), LAYOUT, SEED + 1), Bowls())
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert not torch.equal(one, THETA)


def test_the_vector_given_is_left_alone():
    vector = THETA.clone()
    search = Annealing(k=4, perturbation=WIDE, accept=Margin(beta=0.0, delta=inf), after=StaleSum())
    replied(search.search(vector, LAYOUT, SEED), Bowls())
    assert torch.equal(vector, THETA)


def test_step_scales_the_accepted_perturbation():
    """The authors' β."""
    accept = Margin(beta=0.0, delta=inf)
    whole, _ = run(Annealing(k=4, perturbation=WIDE, accept=accept), Bowls())
    part, report = run(Annealing(k=4, perturbation=WIDE, accept=accept, step=0.3), Bowls())
    assert report.accepted
    torch.testing.assert_close(part, THETA + 0.3 * (whole - THETA))


@pytest.mark.parametrize("accepted", [True, False])
def test_a_stale_sum_by_hand(accepted):
    """Line 17: the gradients of the old θ, summed, applied at the new one."""
    bowls = Bowls()
    accept = Margin(beta=0.0 if accepted else 2.0, delta=inf)
    moved, _ = run(Annealing(k=4, perturbation=WIDE, accept=accept), Bowls())
    found, report = run(Annealing(k=4, perturbation=WIDE, accept=accept, after=StaleSum(lr=0.1)), bowls)
    assert report.accepted == accepted
    assert torch.equal(moved, THETA) != accepted
    torch.testing.assert_close(found, moved - 0.1 * bowls.gradients(THETA).sum(0))


# Scores --------------------------------------------------------------------------------------------------------------


def test_mean_and_min_of_pairs():
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    pairs = [2**-0.5, -1.0, -(2**-0.5)]
    for reduce, expected in (("mean", sum(pairs) / 3), ("min", -1.0)):
        score = InterClient(reduce=reduce)
        assert score.candidate(rows, torch.ones(3, 2)) == score.to_beat(rows) == pytest.approx(expected)


def test_a_client_without_a_gradient_has_cosine_zero():
    rows = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    assert InterClient().to_beat(rows) == pytest.approx(1 / 3)
    assert SelfSimilarity().candidate(rows, rows) == pytest.approx(2 / 3)


def test_self_similarity_compares_each_client_with_itself():
    before = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert SelfSimilarity().candidate(before, before) == pytest.approx(1.0)
    assert SelfSimilarity().to_beat(before) == -1.0
    turned = torch.tensor([[0.0, 1.0], [0.0, 5.0], [3.0, 0.0]])
    assert SelfSimilarity().candidate(turned, before) == pytest.approx((0 + 1 - 1) / 3)


# Clients that fail ---------------------------------------------------------------------------------------------------


def test_a_failure_in_one_candidate_rejects_that_candidate_only():
    everywhere = Bowls()
    search = Annealing(k=5, perturbation=WIDE, accept=Margin(beta=-2.0, delta=inf))
    best, _ = run(search, everywhere)
    winner = next(k for k in range(5) if torch.equal(best, WIDE.follow(THETA, LAYOUT, candidate_path(k))))
    bowls = Bowls()
    bowls.fails = {(1, candidate_path(winner))}
    found, report = run(search, bowls)
    assert report.accepted
    assert report.candidates == 5
    assert not torch.equal(found, best)
    sims = [mean_cosine(bowls.gradients(WIDE.follow(THETA, LAYOUT, candidate_path(k)))) for k in range(5)]
    assert report.sim_best == pytest.approx(sorted(sims)[-2], abs=1e-6)


def test_a_failure_leaves_no_client_without_its_own_gradient_to_compare_with():
    bowls = Bowls()
    bowls.fails = {(0, candidate_path(2))}
    _, report = run(Annealing(k=4, perturbation=WIDE, score="self", accept=Lenient(delta=inf)), bowls)
    assert (report.accepted, report.candidates) == (True, 4)


@pytest.mark.parametrize("walk", ["best", "ratchet", "random_walk"])
def test_failures_in_every_candidate_are_no_error(walk):
    bowls = Bowls()

    def probe(paths):
        for path, answers in zip(paths, bowls(paths), strict=True):
            yield answers if path == () else []

    search = Annealing(k=3, perturbation=WIDE, walk=walk, accept=Lenient(delta=inf))
    found, report = run(search, probe)
    assert torch.equal(found, THETA)
    assert (report.accepted, report.candidates, report.sim_best) == (False, 3, report.sim0)


def test_a_client_that_failed_at_the_start_is_not_asked_for_its_opinion_later():
    """It has no gradient at θ: in a candidate it would change the pairs that are compared."""
    bowls = Bowls(3)
    bowls.fails = {(1, ())}
    search = Annealing(k=4, perturbation=WIDE, accept=Margin(beta=0.0, delta=inf))
    two = Bowls(3)
    two.centres = two.centres[[0, 2]]
    assert torch.equal(run(search, bowls)[0], run(search, two)[0])


def test_a_candidate_without_a_finite_loss_is_rejected():
    probe, _ = scripted([0.9, 0.5], losses=[nan, 1.0])
    _, report = run(Annealing(k=2), probe)
    assert report.accepted
    assert report.sim_best == pytest.approx(0.5, abs=1e-6)


# With clients that have data -----------------------------------------------------------------------------------------


class Clients:
    """Three clients with two classes each and a small network; probes are done as in a run."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(180) % 6
        inputs = torch.randn(180, 10, generator=generator)
        inputs[torch.arange(180), labels] += 2
        inputs[:, 6:] += labels[:, None] * 0.2
        order = labels.argsort(stable=True)
        data = load((inputs[order], labels[order]), test=(inputs[:6], labels[:6]))
        self.federation = data.partition("shards", clients=3, classes_per_client=2)
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6))
        self.model = FlatModule(copy.deepcopy(module))
        self.vector, self.buffers = self.model.vector.clone(), self.model.buffers.clone()

    def probe(self, annealing):
        def probe(paths):
            for path in paths:
                work = client.Probe(perturbation=annealing.perturbation, path=path, batch=annealing.batch)
                answers = []
                for i, shard in enumerate(self.federation.clients):
                    context = client.Context(self.model, self.buffers, i, seed=derive(0, "probe", i))
                    update = work(self.vector, shard, context)
                    answers.append(Update(i, update.vector.clone(), update.examples, update.metrics))
                yield answers

        return probe

    def search(self, annealing):
        return replied(annealing.search(self.vector, self.model.layout, SEED), self.probe(annealing))


def test_the_literal_rule_takes_nothing():
    """β = 0.3 at ρ = 1e-5: what a perturbation can win is orders of magnitude smaller."""
    clients = Clients()
    found, report = clients.search(Annealing())
    assert torch.equal(found, clients.vector)
    assert (report.accepted, report.candidates) == (False, 8)
    assert abs(report.sim_best - report.sim0) < 0.3 / 100
    assert report.sim_best != report.sim0  # the probes did look elsewhere


def test_the_authors_rule_takes_something_every_time():
    clients = Clients()
    _, report = clients.search(Annealing(score="self", accept=Lenient(), step=0.3))
    assert report.accepted
    assert report.sim_best == pytest.approx(1.0, abs=1e-3)
    assert report.sim_best > 0.99 > report.sim0


def test_a_usable_setting_finds_a_better_point():
    clients = Clients()
    search = Annealing(k=16, perturbation=Perturbation(rho=3e-3), accept=Margin(beta=0.0, delta=inf), walk=Ratchet())
    found, report = clients.search(search)
    assert report.accepted
    assert report.gain > 0
    again, _ = Clients().search(search)
    assert torch.equal(found, again)


# On the server -------------------------------------------------------------------------------------------------------


def test_the_server_moves_to_what_was_found():
    stage = stage_with(search=Annealing(k=4, perturbation=WIDE, accept=Margin(beta=0.0, delta=inf)))
    here = server(Schedule(base=stage))
    expected, _ = run(stage.search, Bowls())
    report = replied(here.search(stage.search, SEED), Bowls())
    assert report.accepted
    assert torch.equal(here.vector, expected)


@pytest.mark.parametrize("mode", ["zero", "grad_mask"])
def test_a_search_does_not_move_what_is_pruned(mode):
    stage = stage_with(search=Annealing(k=4, perturbation=WIDE, accept=Margin(beta=-2.0, delta=inf), after=StaleSum()))
    here = server(Schedule(base=stage, pruning=Pruning(mode=mode, threshold=0.5)))
    split, agreed = (1.0, -1.0), (1.0, 1.0)
    exchange(here, columns(split, agreed, split, agreed, split, agreed), stage_with(counts=True, prunes=True))
    before = here.vector.clone()
    assert replied(here.search(stage.search, SEED), Bowls()).accepted
    assert torch.equal(here.vector[::2], before[::2])
    assert (here.vector[1::2] != before[1::2]).all()


def test_a_layout_of_another_size_is_searched_whole():
    layout = Layout(("only",), ((6,),))
    search = Annealing(k=1, perturbation=WIDE, accept=Margin(beta=-2.0, delta=inf))
    found, _ = replied(search.search(THETA, layout, SEED), Bowls())
    assert (found != THETA).all()
