"""Pruning: which coordinates, when, and what becomes of them."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import Dampened, SignSum, Sums
from fedpace.server import Pruner, Pruning, Schedule, ServerSGD
from tests.stages import altered, stage_with

from .helpers import LAYOUT, THETA, columns, exchange, server

AGREED, SPLIT, NOBODY, ONE = (1.0, 1, 1, 1), (1.0, 1, -1, -1), (0.0, 0, 0, 0), (1.0, 1, 1, -1)
PRUNE = stage_with(name="prune", sends="gradient", rule=Dampened(), counts=True, prunes=True)
DAMPEN = altered(PRUNE, counts=False, prunes=False)
COUNT = altered(PRUNE, prunes=False)
FEDAVG = stage_with()


def pruning_server(**settings):
    return server(Schedule(base=FEDAVG, pruning=Pruning(**settings)))


def mask(here):
    return here.pruner.mask.int().tolist()


# Which coordinates ---------------------------------------------------------------------------------------------------


def test_what_lies_below_the_threshold_is_pruned():
    here = pruning_server(threshold=0.5)
    report = exchange(here, columns(AGREED, SPLIT, ONE, AGREED, SPLIT, AGREED), PRUNE)
    assert mask(here) == [0, 1, 0, 0, 1, 0]  # an agreement of exactly one half is not below it
    assert here.pruned == pytest.approx(2 / 6)
    assert report.used == 4


@given(st.lists(st.lists(st.integers(-1, 1), min_size=6, max_size=6), min_size=1, max_size=9))
def test_a_threshold_of_zero_prunes_nothing(rows):
    here = pruning_server(threshold=0.0, zero_gradient="literal")
    exchange(here, torch.tensor(rows), PRUNE)
    assert mask(here) == [0] * 6


@pytest.mark.parametrize("clients", [1, 2, 3, 10, 86, 100, 127, 128, 300])
@pytest.mark.parametrize("threshold", [1.01, 1.5, 3.0])
def test_a_threshold_above_one_prunes_whatever_anyone_moves(clients, threshold):
    """Sums of signs are bytes up to 127 clients; a threshold of 1.5 · 100 does not fit one."""
    rows = torch.ones(clients, 6)
    rows[:, 1::2] *= torch.tensor([1.0, -1.0]).repeat(clients)[:clients, None]
    rows[:, 5] = 0
    here = pruning_server(threshold=threshold)
    exchange(here, rows, PRUNE)
    assert mask(here) == [1, 1, 1, 1, 1, 0]


@given(st.lists(st.lists(st.sampled_from([-1, 1]), min_size=6, max_size=6), min_size=3, max_size=3))
def test_the_papers_setting_prunes_nothing_without_zeros(rows):
    """N = 3: agreement is 1/3 or 1, never below 0.2."""
    here = pruning_server(threshold=0.2)
    exchange(here, torch.tensor(rows), PRUNE)
    assert mask(here) == [0] * 6


def test_the_papers_setting_prunes_where_a_zero_balances_the_signs():
    here = pruning_server(threshold=0.2)
    even = (1.0, -1.0, 0.0)
    exchange(here, columns(even, (1, 1, 1), (1, 1, -1), even, (0, 0, 1), (0, 0, 0)), PRUNE)
    assert mask(here) == [1, 0, 0, 1, 0, 0]


def test_a_coordinate_that_nobody_moves_is_neutral_or_literally_in_conflict():
    rows = columns(NOBODY, SPLIT, NOBODY, AGREED, NOBODY, AGREED)
    neutral, literal = pruning_server(), pruning_server(zero_gradient="literal")
    for here in (neutral, literal):
        exchange(here, rows, PRUNE)
    assert mask(neutral) == [0, 1, 0, 0, 0, 0]
    assert mask(literal) == [1, 1, 1, 0, 1, 0]


def test_neutral_rounds_neither_lengthen_nor_end_a_conflict():
    here = pruning_server(persistence=3)
    seen = []
    for column in (SPLIT, NOBODY, SPLIT, NOBODY, SPLIT):
        exchange(here, columns(*[column] * 6), PRUNE)
        seen.append(int(here.pruner.counters[0]))
    assert seen == [1, 1, 2, 2, 3]
    assert mask(here) == [1] * 6


def test_weights_only_spares_vectors():
    here = pruning_server(include="weights_only")
    exchange(here, columns(*[SPLIT] * 6), PRUNE)
    assert mask(here) == [1, 1, 1, 1, 0, 0]  # the last two are the bias


# When ----------------------------------------------------------------------------------------------------------------


def test_persistence_needs_consecutive_rounds():
    here = pruning_server(persistence=3)
    history = []
    for first in (SPLIT, SPLIT, AGREED, SPLIT, SPLIT, SPLIT):
        exchange(here, columns(first, *[AGREED] * 5), PRUNE)
        history.append((int(here.pruner.counters[0]), mask(here)[0]))
    assert history == [(1, 0), (2, 0), (0, 0), (1, 0), (2, 0), (3, 1)]


def test_agreement_of_many_clients_is_no_conflict():
    pruner, signs = Pruner(Pruning(), LAYOUT), SignSum(LAYOUT.size, 40_000)
    Sums(torch.zeros(LAYOUT.size), torch.full((LAYOUT.size,), 40_000), 40_000, 1.0).count(signs)
    pruner.count(signs, torch.ones(LAYOUT.size, dtype=torch.bool))
    assert not pruner.counters.any()


def test_counters_stop_at_255():
    pruner = Pruner(Pruning(persistence=255), LAYOUT)
    signs = SignSum(LAYOUT.size, 2)
    for sign in (1.0, -1.0):
        signs.add(torch.full((LAYOUT.size,), sign))
    touched = torch.ones(LAYOUT.size, dtype=torch.bool)
    for number in range(1, 301):
        pruner.count(signs, touched)
        pruner.prune()
        assert pruner.counters.tolist() == [min(number, 255)] * 6
        assert pruner.mask.all() == (number >= 255)
    assert pruner.counters.dtype == torch.uint8


def test_conflicts_may_be_counted_before_pruning_begins():
    """``counts`` in the dampening stage: with a persistence of 3, the first pruning round already prunes."""
    early, late = pruning_server(persistence=3), pruning_server(persistence=3)
    rows = columns(SPLIT, *[AGREED] * 5)
    for _ in range(2):
        exchange(early, rows, COUNT)
        exchange(late, rows, DAMPEN)
    assert mask(early) == mask(late) == [0] * 6  # nothing is pruned by counting
    assert early.pruner.counters.tolist() == [2, 0, 0, 0, 0, 0]
    assert late.pruner.counters.tolist() == [0] * 6
    for here in (early, late):
        exchange(here, rows, PRUNE)
    assert mask(early)[0] == 1
    assert mask(late)[0] == 0


@st.composite
def histories(draw):
    clients = draw(st.integers(1, 5))
    matrix = st.lists(st.lists(st.integers(-1, 1), min_size=6, max_size=6), min_size=clients, max_size=clients)
    stages = st.sampled_from([PRUNE, COUNT, DAMPEN, FEDAVG])
    return draw(st.lists(st.tuples(stages, matrix), min_size=1, max_size=8))


@given(
    history=histories(),
    threshold=st.integers(0, 12),
    persistence=st.integers(1, 3),
    permanent=st.booleans(),
    zero_gradient=st.sampled_from(["neutral", "literal"]),
)
def test_counters_and_mask_follow_their_definition(history, threshold, persistence, permanent, zero_gradient):
    """A model of 1.4 in plain Python, coordinate by coordinate."""
    here = pruning_server(
        threshold=threshold / 10, persistence=persistence, permanent=permanent, zero_gradient=zero_gradient
    )
    counters, pruned = [0] * 6, [False] * 6
    for stage, rows in history:
        exchange(here, torch.tensor(rows), stage)
        for j in range(6):
            column = [row[j] for row in rows]
            if stage.exchanges[0].counts and (any(column) or zero_gradient == "literal"):
                conflict = Fraction(abs(sum(column)), len(column)) < Fraction(threshold, 10)
                counters[j] = counters[j] + 1 if conflict else 0
            if stage.exchanges[0].prunes:
                pruned[j] = counters[j] >= persistence or (permanent and pruned[j])
        assert here.pruner.counters.tolist() == counters
        assert here.pruner.mask.tolist() == pruned


@given(
    history=histories(), mode=st.sampled_from(["zero", "zero_scale", "grad_mask"]), momentum=st.sampled_from([0, 0.9])
)
def test_a_permanent_mask_grows_and_holds(history, mode, momentum):
    here = pruning_server(threshold=0.7, mode=mode)
    before, values = here.pruner.mask.clone(), here.vector.clone()
    for stage, rows in history:
        optimizer = ServerSGD(lr=0.5, momentum=momentum)
        exchange(here, torch.tensor(rows), altered(stage, optimizer=optimizer))
        now = here.pruner.mask
        assert (now | before).equal(now)
        if mode == "grad_mask":
            assert torch.equal(here.vector[before], values[before])  # frozen, not zeroed
        else:
            assert not here.vector[now].any()
        before, values = now.clone(), here.vector.clone()


# What becomes of them ------------------------------------------------------------------------------------------------

ROWS = columns((2, 4, 6, 8), (3, 1, -1, -1), (2, 2, 2, -2), (1, 1, 1, 1), (5, -1, -1, 1), (0, 0, 0, 0))
AGREEMENT = torch.tensor([1.0, 0, 0.5, 1, 0, 0])
STEP = torch.tensor([5.0, 0, 0.5, 1, 0, 0])  # the mean (5, ½, 1, 1, 1, 0) times the agreement
PRUNED = torch.tensor([False, True, False, False, True, False])  # the last one is neutral


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("zero", [6.0, 0.0, 3.5, -3.0, 0.0, -6.0]),
        ("grad_mask", [6.0, -2.0, 3.5, -3.0, 5.0, -6.0]),
    ],
)
def test_modes_by_hand(mode, expected):
    here = pruning_server(threshold=0.5, mode=mode)
    exchange(here, ROWS, PRUNE)
    assert torch.equal(here.pruner.mask, PRUNED)
    assert here.vector.tolist() == expected
    assert torch.equal(torch.tensor(expected)[~PRUNED], (THETA + STEP)[~PRUNED])  # survivors take the dampened step


def test_zero_scale_multiplies_survivors_by_their_agreement():
    here = pruning_server(threshold=0.5, mode="zero_scale")
    rows = ROWS.clone()
    rows[:, 5] = torch.tensor([1.0, 1, 1, -1])
    exchange(here, rows, PRUNE)
    assert here.vector.tolist() == [6.0, 0.0, 3.5 / 2, -3.0, 0.0, (-6 + 0.25) / 2]


def test_zero_scale_in_eight_rounds_destroys_a_coordinate_of_low_agreement():
    here = pruning_server(threshold=0.2, mode="zero_scale")
    rows = columns(*[(1e-6, 1e-6, -2e-6)] * 6)
    for _ in range(8):
        exchange(here, rows, PRUNE)
    torch.testing.assert_close(here.vector, THETA * 3.0**-8, rtol=1e-4, atol=1e-9)


def test_zero_scale_does_nothing_outside_pruning_rounds():
    here = pruning_server(threshold=0.5, mode="zero_scale")
    exchange(here, ROWS, COUNT)
    assert torch.equal(here.vector, THETA + STEP)


@pytest.mark.parametrize("mode", ["zero", "zero_scale"])
def test_pruned_weights_stay_zero_through_later_rounds(mode):
    here = pruning_server(mode=mode)
    exchange(here, columns(SPLIT, *[AGREED] * 5), PRUNE)
    for stage in (FEDAVG, DAMPEN, FEDAVG, PRUNE):
        exchange(here, torch.full((4, 6), 0.3), stage)
        assert here.vector[0] == 0.0
        assert (here.vector[1:] != 0).all()
        assert here.pruned == pytest.approx(1 / 6)


def test_what_is_not_permanent_regrows():
    here = pruning_server(permanent=False)
    rows = columns(SPLIT, *[AGREED] * 5)
    exchange(here, rows, PRUNE)
    assert here.vector[0] == 0.0
    exchange(here, torch.ones(4, 6), FEDAVG)
    assert here.vector[0] == 1.0  # another round's step is not masked
    exchange(here, columns(*[AGREED] * 6), PRUNE)
    assert here.vector[0] == 2.0  # agreed upon again: let go
    assert here.pruned == 0.0


def test_grad_mask_that_is_not_permanent_skips_only_this_rounds_step():
    """The authors' notebooks."""
    here = pruning_server(permanent=False, mode="grad_mask", threshold=0.6)
    exchange(here, columns(ONE, *[AGREED] * 5), PRUNE)
    assert here.vector[0] == THETA[0]
    exchange(here, torch.ones(4, 6), FEDAVG)
    assert here.vector[0] == THETA[0] + 1


def test_pruning_follows_the_clients_that_remain():
    """Of four announced, one is dropped: three clients cannot split evenly."""
    here = pruning_server(threshold=0.2)
    rows = columns(*[SPLIT] * 6)
    rows[3, 0] = float("nan")
    exchange(here, rows, PRUNE)
    assert mask(here) == [0] * 6


def test_a_round_without_usable_updates_counts_nothing():
    here = pruning_server(persistence=2)
    rows = columns(*[SPLIT] * 6)
    exchange(here, rows, PRUNE)
    exchange(here, rows * float("nan"), PRUNE)
    assert here.pruner.counters.tolist() == [1] * 6
    exchange(here, rows, PRUNE)
    assert mask(here) == [1] * 6


def test_without_pruning_in_the_schedule_nothing_is_pruned():
    here = server(Schedule(base=PRUNE))
    exchange(here, columns(*[SPLIT] * 6))
    assert here.pruned == 0.0
    assert torch.equal(here.vector, THETA)


@pytest.mark.parametrize("wrong", [{"threshold": -0.1}, {"persistence": 0}, {"persistence": 256}, {"mode": "half"}])
def test_values_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pruning(**wrong)
