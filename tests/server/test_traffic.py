"""Bytes on the wire, counted by hand."""

import pytest

from fedpace.core import Layout
from fedpace.server import Annealing, Stage, traffic
from fedpace.server.annealing import StaleSum

from .helpers import LAYOUT, buffers

D, FLOATS, INTEGERS, N = 6, 3, 1, 5
B = FLOATS + INTEGERS
SEEDS = 2 * 2  # two candidates, whose seeds take 8 bytes each
HELD = buffers([0.0] * FLOATS, [0] * INTEGERS)
GRADIENT = Stage(sends="gradient")
ANNEAL = Stage(search=Annealing(k=2))


@pytest.mark.parametrize(
    ("stage", "policy", "up", "down"),
    [
        (Stage(), "weighted_mean", D + B, D + B),
        (Stage(), "mean", D + B, D + B),
        (Stage(), "first", D + B, D + B),
        (Stage(), "keep_server", D, D + B),  # clients need the statistics, the server does not take theirs
        (Stage(), "local", D, D),
        (GRADIENT, "weighted_mean", D, D + B),
        (GRADIENT, "local", D, D),
        # A gradient and a loss at θ and at two candidates, which travel as seeds; then FedAvg.
        (ANNEAL, "weighted_mean", 3 * (D + 1) + D + B, D + B + SEEDS + D + B),
        (ANNEAL, "keep_server", 3 * (D + 1) + D, D + B + SEEDS + D + B),
        (ANNEAL, "local", 3 * (D + 1) + D, D + SEEDS + D),
        (Stage(search=Annealing(k=2, after="nothing")), "mean", 3 * (D + 1), D + B + SEEDS),
        (Stage(search=Annealing(k=2, after=StaleSum())), "mean", 3 * (D + 1), D + B + SEEDS),
        (Stage(search=Annealing(k=0)), "mean", D + B, D + B),
        # Two exchanges in a round.
        (Stage(sends="gradient", then=Stage()), "mean", D + D + B, 2 * (D + B)),
        (Stage(search=Annealing(k=2, after="nothing"), then=GRADIENT), "mean", 3 * (D + 1) + D, D + B + SEEDS + D + B),
    ],
)
def test_bytes_of_a_round(stage, policy, up, down):
    assert traffic(stage, LAYOUT, HELD, policy, N) == (4 * N * up, 4 * N * down)


def test_personal_parts_never_travel():
    layout = LAYOUT.with_personal(lambda name: name == "bias")
    assert traffic(Stage(), layout, HELD, "local", N) == (4 * N * 4, 4 * N * 4)
    assert traffic(ANNEAL, layout, HELD, "local", 1) == (4 * (3 * 5 + 4), 4 * (4 + SEEDS + 4))


def test_the_papers_search_sends_nine_gradients():
    """1.8: 9 d floats, 3.4 MB, at d = 94,986 and K = 8."""
    layout = Layout(("all",), ((94_986,),))
    up, _ = traffic(Stage(search=Annealing(after="nothing")), layout, buffers(), "local", 1)
    assert up == 4 * 9 * (94_986 + 1)
    assert up / 1e6 == pytest.approx(3.4, abs=0.05)


def test_no_clients_no_bytes():
    assert traffic(ANNEAL, LAYOUT, HELD, "mean", 0) == (0, 0)
