"""Which stage a round belongs to, and what a user is told about a schedule that cannot be meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import (
    AndMask,
    ConflictFree,
    Dampened,
    Krum,
    Masked,
    NearestNeighbours,
    NormClipping,
    TrimmedMean,
)
from fedpace.core import ConfigError
from fedpace.server import Annealing, Exchange, Pruning, Schedule, Stage
from tests.stages import stage_with


@st.composite
def disjoint(draw):
    """Rounds, and disjoint windows in any order, the last of which may be open."""
    rounds = draw(st.integers(1, 60))
    cuts = sorted(draw(st.sets(st.integers(0, rounds), max_size=10)))
    windows = [(a, b - 1) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    if windows and draw(st.booleans()):
        windows[-1] = (windows[-1][0], None)
    stages = [stage_with(first=first, last=last, name=f"s{i}") for i, (first, last) in enumerate(windows)]
    return rounds, tuple(draw(st.permutations(stages)))


@given(disjoint())
def test_every_round_belongs_to_exactly_one_stage(given_input):
    rounds, stages = given_input
    schedule = Schedule(stages=stages)
    assert schedule.validate_for(rounds, clients=3) == []
    for r in range(rounds):
        covering = [s for s in stages if s.first <= r <= (rounds if s.last is None else s.last)]
        assert len(covering) <= 1
        assert schedule.stage(r) == (covering[0] if covering else schedule.base)


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 22), st.none() | st.integers(0, 22)), max_size=4),
)
def test_exactly_what_cannot_be_meant_is_refused(rounds, windows):
    schedule = Schedule(
        stages=tuple(stage_with(first=first, last=last, name=f"s{i}") for i, (first, last) in enumerate(windows))
    )
    rounds_of = [range(first, (rounds if last is None else last + 1)) for first, last in windows]
    legal = all(len(r) and r[-1] < rounds for r in rounds_of)
    disjoint = sum(map(len, rounds_of)) == len({r for covered in rounds_of for r in covered})
    if legal and disjoint:
        assert schedule.validate_for(rounds, clients=4) == []
    else:
        with pytest.raises(ConfigError) as caught:
            schedule.validate_for(rounds, clients=4)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [stage_with(first=2, last=15, name="anneal"), stage_with(first=15, last=41, name="dampen")],
            r"stages 'anneal' \(rounds 2 to 15\) and 'dampen' \(rounds 15 to 41\) overlap",
        ),
        (
            [stage_with(first=42, last=49, name="prune"), stage_with(first=20, last=None, name="dampen")],
            r"stages 'prune' \(rounds 42 to 49\) and 'dampen' \(rounds 20 to the end\) overlap",
        ),
        ([stage_with(first=9, last=3, name="anneal")], "stage 'anneal': rounds 9 to 3 is empty"),
        (
            [stage_with(first=42, last=50, name="prune")],
            r"stage 'prune': rounds 42 to 50 \(from 0\) needs 51 rounds, the run has 50",
        ),
        (
            [stage_with(first=50, last=None, name="late")],
            "stage 'late': rounds 50 to the end .* needs 51 rounds, the run has 50",
        ),
    ],
)
def test_errors_are_one_line_with_names(stages, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Schedule(stages=tuple(stages)).validate_for(50, clients=3)
    assert "\n" not in str(caught.value)


def test_the_papers_windows():
    schedule = Schedule(
        stages=(
            stage_with(first=2, last=15, name="anneal"),
            stage_with(first=20, last=41, name="dampen"),
            stage_with(first=42, last=49, name="prune"),
        )
    )
    assert schedule.validate_for(50, clients=3) == []
    names = [schedule.stage(r).name for r in range(50)]
    assert {name: names.count(name) for name in names} == {"fedavg": 2 + 4, "anneal": 14, "dampen": 22, "prune": 8}
    assert names[:3] == ["fedavg", "fedavg", "anneal"]
    assert names[15:20] == ["anneal"] + ["fedavg"] * 4


# Warnings ------------------------------------------------------------------------------------------------------------


def pruning(threshold, clients):
    prune = stage_with(first=5, last=None, name="prune", rule=Dampened(), counts=True, prunes=True)
    return Schedule(stages=(prune,), pruning=Pruning(threshold=threshold)).validate_for(10, clients)


def test_the_papers_own_pruning_cannot_act():
    (warning,) = pruning(0.2, clients=3)
    assert warning == (
        "stage 'prune' cannot prune: the lowest agreement that 3 clients can show is 0.333, not below the threshold "
        "0.2; one above 0.333 would act"
    )


@pytest.mark.parametrize(("threshold", "clients"), [(0.2, 4), (0.34, 3), (0.2, 7), (1.1, 1), (0.01, 2)])
def test_pruning_that_can_act_is_not_warned_of(threshold, clients):
    assert pruning(threshold, clients) == []


@pytest.mark.parametrize(("threshold", "clients"), [(1 / 3, 3), (0.2, 5), (1.0, 1), (0.0, 4), (0.1, 9)])
def test_pruning_that_cannot_act_is_warned_of(threshold, clients):
    assert ["cannot prune" in warning for warning in pruning(threshold, clients)] == [True]


@given(st.integers(0, 150), st.integers(1, 130))
def test_can_act_is_what_clients_can_show(percent, clients):
    """Without zeros, |S| takes the values N, N − 2, …: pruning acts if one of them lies below the threshold."""
    possible = [abs(2 * positive - clients) for positive in range(clients + 1)]
    acts = any(100 * s < percent * clients for s in possible)
    assert Pruning(threshold=percent / 100).can_act(clients) == acts
    assert Pruning().lowest_agreement(clients) == min(possible) / clients


def test_a_mask_below_the_lattice_is_warned_of():
    def warnings(tau, clients):
        return Schedule(base=stage_with(name="gma", rule=Masked(tau=tau))).validate_for(5, clients)

    assert warnings(0.3, 3) == [
        "stage 'gma': no agreement of 3 clients lies below tau = 0.3, so masking is the plain mean"
    ]
    assert warnings(1 / 3, 3) != []  # an agreement of exactly tau passes
    assert warnings(0.0, 4) != []
    assert warnings(0.4, 3) == warnings(0.3, 4) == warnings(0.4, 10) == []


def mask_warnings(rule, clients, **options):
    return Schedule(base=stage_with(name="mask", rule=rule, **options)).validate_for(5, clients)


def test_a_strict_threshold_is_another_lattice():
    for rule in (Masked, AndMask):
        assert mask_warnings(rule(tau=0.0, threshold="strict"), 4) == []  # an even split is stopped
        assert mask_warnings(rule(tau=0.0, threshold="strict"), 3) != []
        assert mask_warnings(rule(tau=1 / 3, threshold="strict"), 3) == []
        assert mask_warnings(rule(tau=1 / 3), 3) != []


def test_a_mask_that_lets_nothing_through_is_warned_of():
    warning = "stage 'mask' stands still: no agreement lies above tau = 1"
    assert mask_warnings(AndMask(tau=1.0, threshold="strict"), 4) == [warning]
    assert mask_warnings(AndMask(tau=1.0), 4) == mask_warnings(Masked(tau=1.0, threshold="strict"), 4) == []


def test_votes_by_samples_need_weights_by_samples():
    rule = Masked(agreement_weights="samples")
    (warning,) = mask_warnings(rule, 4, weights="uniform")
    assert warning == (
        "stage 'mask': agreement_weights = 'samples' has no effect while clients count alike; "
        "expected weights = 'samples'"
    )
    assert mask_warnings(rule, 4, weights="samples") == []
    assert mask_warnings(Masked(tau=0.1, agreement_weights="samples"), 3, weights="samples") == []  # any agreement


def test_one_client_cannot_search():
    schedule = Schedule(stages=(stage_with(first=1, last=2, name="anneal", search=Annealing()),))
    assert schedule.validate_for(5, clients=1) == [
        "stage 'anneal' cannot search: one client has no other to agree with"
    ]
    assert schedule.validate_for(5, clients=2) == []


def test_an_idle_rule_is_noticed_in_a_second_exchange_too():
    stage = Stage(name="two", exchanges=(Exchange(), Exchange(rule=Masked(tau=0.1))))
    assert ["'two'" in warning for warning in Schedule(base=stage).validate_for(5, clients=3)] == [True]


def test_a_rule_that_may_not_do_what_was_meant_is_warned_of():
    def warnings(c):
        return Schedule(base=stage_with(name="confree", rule=ConflictFree(c=c))).validate_for(5, 3)

    assert warnings(0.9) == []
    assert warnings(1.0) == [
        "stage 'confree': c = 1 is not below 1, so the step may turn against the guidance: "
        "d·g ≥ (1 − c)‖g‖² promises nothing"
    ]


def test_a_rule_that_cannot_work_in_such_a_round_is_refused():
    schedule = Schedule(base=Stage(name="krum", exchanges=(Exchange(rule=Krum(attackers=2)),)))
    assert schedule.validate_for(5, clients=7) == []
    with pytest.raises(ConfigError, match=r"^stage 'krum': rule 'krum', attackers = 2: expected at least 7 clients"):
        schedule.validate_for(5, clients=6)


@pytest.mark.parametrize(
    ("rule", "clients", "warning"),
    [
        (TrimmedMean(share=0.2), 4, "rule 'trimmed_mean' bears no attackers among 4 clients"),
        (TrimmedMean(share=0.2), 5, None),
        (TrimmedMean(share=0), 4, None),
        (Krum(), 4, "rule 'krum' bears no attackers among 4 clients"),
        (Krum(attackers=0), 4, None),
        (
            NearestNeighbours(),
            9,
            "'nearest_neighbours' before 'mean' bears no attackers: expected a robust rule behind it",
        ),
        (NearestNeighbours(rule="median"), 9, None),
        (NormClipping(), 9, None),
    ],
)
def test_a_robust_rule_that_bears_nobody_is_warned_of(rule, clients, warning):
    schedule = Schedule(base=Stage(name="robust", exchanges=(Exchange(rule=rule),)))
    assert schedule.validate_for(5, clients) == ([] if warning is None else [f"stage 'robust': {warning}"])
