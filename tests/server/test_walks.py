"""Acceptance and walks, driven by tables of scores instead of clients."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.server.annealing import Best, Candidate, Lenient, Margin, RandomWalk, Ratchet

from .helpers import replied

START = Candidate((), 0.0, 1.0)
WALKS = [Best(), Ratchet(), RandomWalk()]
every_walk = pytest.mark.parametrize("walk", WALKS, ids=repr)


class Table:
    """Answers the k-th question with the k-th score and loss, and remembers the paths that were asked."""

    def __init__(self, scores, losses=None):
        self._answers = iter(zip(scores, losses or [1.0] * len(scores), strict=True))
        self.paths = []

    def __call__(self, paths):
        for path in paths:
            self.paths.append(path)
            yield Candidate(path, *next(self._answers))


def search(walk, scores, losses=None, accept=None, reference=START):
    """The path taken (seeds are 1, 2, …), and all paths that were tried."""
    table = Table(scores, losses)
    taken = replied(walk.search(range(1, len(scores) + 1), reference, accept or Margin()), table)
    return (taken.path if taken else None), table.paths


# Acceptance ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "loss", "accepted"),
    [
        (0.75, 1.0, True),
        (0.5, 1.0, False),  # strictly more than beta
        (0.75, 1.125, True),
        (0.75, 1.25, False),  # strictly less than delta
        (0.75, -9.0, True),
        (nan, 1.0, False),
        (0.75, nan, False),
        (inf, 1.0, False),
        (0.75, -inf, False),
    ],
)
def test_margin(score, loss, accepted):
    assert Margin(beta=0.5, delta=0.25).accepts(Candidate((1,), score, loss), START) == accepted


def test_nothing_beats_a_reference_that_is_not_a_number():
    candidate = Candidate((1,), 1.0, 0.0)
    for reference in (Candidate((), nan, 1.0), Candidate((), 0.0, nan)):
        for accept in (Margin(beta=0.0), Lenient()):
            assert not accept.accepts(candidate, reference)
    assert Lenient().rescue([candidate], Candidate((), 0.0, nan)) is None


def test_lenient_needs_no_margin():
    assert Lenient().accepts(Candidate((1,), 1e-9, 1.0), START)
    assert not Lenient().accepts(Candidate((1,), 0.0, 1.0), START)
    assert not Lenient(delta=0.1).accepts(Candidate((1,), 0.5, 1.2), START)


def test_lenient_rescues_the_best_score_if_its_loss_allows():
    scores = [-0.5, -0.1, nan, -0.3]
    assert search(Best(), scores, accept=Lenient())[0] == (2,)
    assert search(Best(), scores, [1.0, 2.0, 1.0, 1.0], Lenient())[0] is None  # only the best is looked at
    assert search(Best(), [nan, nan], accept=Lenient())[0] is None
    assert search(Best(), scores, accept=Margin(beta=0.0))[0] is None  # a margin rescues nothing


def test_lenient_prefers_what_passes():
    """The best score of all fails on its loss; a lower one passes."""
    assert search(Best(), [0.9, 0.2], [5.0, 1.0], Lenient())[0] == (2,)


# Walks ---------------------------------------------------------------------------------------------------------------


def test_best_and_ratchet_differ():
    """1.2: from 0 with a margin of 0.3, 0.6 does not beat 0.4 by enough."""
    assert search(Best(), [0.4, 0.6])[0] == (2,)
    assert search(Ratchet(), [0.4, 0.6])[0] == (1,)
    assert search(Ratchet(), [0.4, 0.71])[0] == (2,)


@every_walk
def test_nothing_accepted(walk):
    assert search(walk, [0.1, 0.3, -0.5])[0] is None
    assert search(walk, [])[0] is None
    assert search(walk, [0.9, 0.9], accept=Margin(delta=-inf))[0] is None


@every_walk
def test_a_candidate_that_is_not_a_number_is_rejected(walk):
    taken, _ = search(walk, [nan, 0.5, nan])
    assert taken[-1] == 2
    assert search(walk, [0.9, 0.5], [nan, 1.0])[0][-1] == 2


@pytest.mark.parametrize("walk", [Best(), Ratchet()], ids=repr)
def test_ties_go_to_the_first(walk):
    assert search(walk, [0.5, 0.5, 0.5])[0] == (1,)


def test_ties_of_a_rescue_go_to_the_first():
    assert search(Best(), [-0.5, -0.2, -0.2], accept=Lenient())[0] == (2,)


@pytest.mark.parametrize("walk", [Best(), Ratchet()], ids=repr)
def test_candidates_lie_around_the_start(walk):
    assert search(walk, [0.4, -1.0, 0.9])[1] == [(1,), (2,), (3,)]


@pytest.mark.parametrize("walk", [Best(), Ratchet()], ids=repr)
def test_losses_are_measured_from_the_start(walk):
    """A low loss on the way does not raise the bar."""
    assert search(walk, [0.4, 0.8], [0.0, 1.04])[0] == (2,)


def test_a_rejected_step_of_the_random_walk_is_not_undone():
    taken, paths = search(RandomWalk(), [0.1, 0.2, 0.5, 0.6, 0.9])
    assert paths == [(1,), (1, 2), (1, 2, 3), (4,), (4, 5)]  # accepted at the third: back to the start
    assert taken == (4, 5)


def test_the_random_walks_reference_moves_with_what_it_accepts():
    assert search(RandomWalk(), [0.4, 0.6])[0] == (1,)  # 0.6 is not 0.3 above 0.4
    assert search(RandomWalk(), [0.4, 0.8], [0.0, 1.04])[0] == (1,)  # nor may the loss rise by more than delta
    assert search(RandomWalk(), [0.4, 0.8], [0.0, 0.04])[0] == (2,)


@given(st.lists(st.floats(-1, 1) | st.just(nan), max_size=8), st.floats(0, 0.5), st.permutations(range(8)))
def test_best_is_the_maximum_whatever_the_order(scores, beta, order):
    accept = Margin(beta=beta)
    table = dict(enumerate(scores))
    shuffled = [seed for seed in order if seed in table]

    def evaluate(paths):
        return (Candidate(path, table[path[0]], 1.0) for path in paths)

    there, back = (replied(Best().search(seeds, START, accept), evaluate) for seeds in (list(table), shuffled))
    passing = [score for score in scores if score > beta]
    assert (there is None) == (back is None) == (not passing)
    if passing:
        assert there.score == back.score == max(passing)


@every_walk
@given(scores=st.lists(st.floats(-1, 1) | st.just(nan), max_size=8), beta=st.floats(0, 0.5))
def test_what_is_taken_gains_at_least_the_margin(walk, scores, beta):
    table = Table(scores)
    taken = replied(walk.search(range(len(scores)), START, Margin(beta=beta)), table)
    if taken is not None:
        assert taken.score >= START.score + beta
    assert len(table.paths) == len(scores)
