"""Rules that bear attackers: how many, what happens beyond the middle, and what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import (
    Bucketing,
    CentredClipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NearestNeighbours,
    NormClipping,
    RootTrust,
    TrimmedMean,
    _gram,
    rules,
)
from fedpace.aggregation._distances import smallest
from fedpace.aggregation._sorting import network
from fedpace.core import ConfigError, parse
from tests.aggregation.inputs import make, matrices
from tests.aggregation.properties import assert_close, filled, stream
from tests.aggregation.record_byzfl import VECTORS
from tests.aggregation.test_properties import CLIPPED, RULES, title

ROBUST = [rule for rule in RULES if rule.bears(20)]
NOT_ROBUST = {"mean", "dampened", "masked", "harmonised", "conflict_free", "elected"}
every_robust_rule = pytest.mark.parametrize("rule", ROBUST, ids=title)


def test_other_rules_bear_nobody():
    assert {name for name in rules.names() if not rules.get(name)().bears(20)} >= NOT_ROBUST


@every_robust_rule
@pytest.mark.parametrize("clients", [3, 5, 8, 11, 20])
@pytest.mark.parametrize("far", [1e3, 1e9, 1e18, 1e36])
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_attackers_that_a_rule_bears_move_it_no_further_than_others_reach(rule, clients, far, together):
    honest = make("normal", clients, 30)
    reach = 2 * float(honest.norm(dim=1).max())
    attackers = rule.bears(clients)
    attacked = honest.clone()
    sent = far * (torch.ones(clients, 30) if together else make("normal", clients, 30, seed=1))
    attacked[clients - attackers :] = sent[clients - attackers :]
    assert rule(attacked).norm() <= reach


@every_robust_rule
def test_one_attacker_more_than_a_rule_bears_can_be_too_many(rule):
    """Or the number that it declares would not mean anything. (What is bounded by settings, is.)"""
    clients = 20
    attacked = make("normal", clients, 30)
    attacked[-clients // 2 - 1 :] = 1e6
    attacked[0] = 1e6 if rule.trusted is not None else attacked[0]
    assert rule(attacked).norm() > 100 or rule in CLIPPED


@every_robust_rule
def test_bearing_never_asks_for_more_clients_than_there_are(rule):
    assert [rule.bears(clients) for clients in (0, 1)] == [0, 0]
    least = 1 if rule.trusted is not None else 2
    assert all(least * rule.bears(clients) < clients for clients in range(1, 40))


@every_robust_rule
def test_samples_do_not_count(rule):
    """An attacker may declare as many as it likes."""
    if rule.registered_name() == "norm_clipping" and rule.rule.registered_name() in ("mean", "masked"):
        pytest.skip("the rule behind it counts samples")
    updates = make("normal", 7, 12)
    assert torch.equal(rule(updates, torch.tensor([1.0, 1e9, 0.0, 3.0, 1.0, 2.0, 5.0])), rule(updates))


def test_clipped_updates_keep_their_weights():
    updates, weights = torch.tensor([[3.0, 0.0], [0.0, 3.0], [900.0, 0.0]]), torch.tensor([1.0, 0.0, 0.0])
    assert NormClipping()(updates, weights).tolist() == [3, 0]


@every_robust_rule
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 7])
def test_any_finite_updates_have_a_finite_aggregate(rule, clients):
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        exponents = torch.rand(clients, 20, generator=generator) * 76 - 38
        signs = torch.randint(-1, 2, (clients, 20), generator=generator)
        updates = (signs * 10.0 ** exponents.double()).float().clamp(-3e38, 3e38)
        if clients > 1:
            updates[0], updates[-1] = 3e38, 1e-38
        assert rule(updates).isfinite().all()
        assert rule(updates.double()).isfinite().all()


# One rule each ------------------------------------------------------------------------------------------------------


@given(matrices())
def test_the_median_is_numpys(updates):
    assert_close(
        Median()(updates), torch.from_numpy(np.median(updates, axis=0)).to(updates), 1e-6 * updates.abs().max()
    )


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_the_network_sorts_any_number_of_values(count, seed):
    values = np.random.default_rng(seed).integers(0, 9, count)
    found = values.copy()
    for i, j in network(count):
        found[i], found[j] = min(found[i], found[j]), max(found[i], found[j])
    assert found.tolist() == sorted(values.tolist())


@pytest.mark.parametrize("size", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_updates_are_sorted_like_short_ones(size, dtype):
    updates = make("normal", 9, size, dtype=dtype)
    expected = updates.sort(dim=0).values[2:7].double().mean(dim=0).to(dtype)
    assert_close(TrimmedMean(share=0.3)(updates), expected, 1e-6)


@pytest.mark.parametrize(("clients", "share", "left_out"), [(10, 0.1, 1), (10, 0.29, 2), (10, 0.3, 3), (7, 0.1, 0)])
def test_the_trimmed_share_is_rounded_down(clients, share, left_out):
    """And 0.3 of 10 is 3, though it is not in binary."""
    assert TrimmedMean(share=share).bears(clients) == left_out
    assert len(TrimmedMean(share=share).ranked(clients)) == clients - 2 * left_out


def test_nothing_trimmed_is_the_mean():
    updates = make("normal", 6, 9)
    assert_close(TrimmedMean(share=0)(updates), Mean()(updates), 1e-6)


def objective(point, updates):
    return float((updates - point).norm(dim=1).sum())


@given(
    matrices(families=("normal", "sparse", "dominant", "opposite", "duplicated", "lattice"), dtypes=(torch.float64,))
)
def test_no_point_nearby_has_a_smaller_sum_of_distances(updates):
    found = GeometricMedian()(updates)
    least = objective(found, updates)
    generator = torch.Generator().manual_seed(0)
    scale = float(updates.norm(dim=1).median())
    for step in (1e-3, 1e-2, 0.1, 1.0):
        direction = torch.randn(updates.shape[1], generator=generator, dtype=torch.float64)
        assert objective(found + step * scale * direction, updates) >= least * (1 - 1e-6)
    for client in updates:
        assert objective(client, updates) >= least * (1 - 1e-5)


def test_where_most_clients_agree_they_are_the_geometric_median():
    updates = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [5.0, 5.0], [9.0, -9.0]])
    assert GeometricMedian()(updates).tolist() == [1, 2]


def test_the_median_of_a_line_of_clients_is_the_middle_one():
    line = torch.tensor([[-900.0], [1.0], [2.0], [3.0], [1e6]])
    assert GeometricMedian()(line).item() == pytest.approx(2, abs=1e-3)


def krum_scores(updates, attackers):
    """As Blanchard et al. write it."""
    neighbours = len(updates) - attackers - 2
    return [
        sum(sorted(float((u - v).square().sum()) for j, v in enumerate(updates) if j != i)[:neighbours])
        for i, u in enumerate(updates)
    ]


@given(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_krum_is_that_of_the_paper(attackers, more, seed):
    updates = make("normal", 2 * attackers + 4 + more, 10, seed, torch.float64)
    scores = krum_scores(updates, attackers)
    used, found = stream(Krum(attackers=attackers), updates)
    assert used.diagnostics["scores"] == pytest.approx(scores)
    if (best := np.argsort(scores, kind="stable"))[0] >= 0 and scores[best[0]] < 0.999 * scores[best[1]]:
        assert torch.equal(found, updates[best[0]])


def test_multi_krum_averages_as_many_as_asked_for():
    updates = make("normal", 9, 10, seed=4, dtype=torch.float64)
    order = np.argsort(krum_scores(updates, 2))
    for selected, expected in ((None, 7), (1, 1), (3, 3)):
        found = MultiKrum(attackers=2, selected=selected)(updates)
        assert_close(found, updates[order[:expected].copy()].mean(dim=0), 1e-12)
    assert torch.equal(MultiKrum(attackers=2, selected=1)(updates), Krum(attackers=2)(updates))


def test_krum_among_fewer_clients_than_were_expected_bears_what_it_can():
    """Clients that drop out do not stop a round."""
    updates = make("normal", 4, 5)
    assert torch.equal(Krum(attackers=3)(updates), Krum(attackers=0)(updates))
    assert Krum(attackers=3).bears(4) == 0


def test_equal_scores_share():
    line = torch.tensor([[0.0], [1.0], [100.0]])
    assert Krum(attackers=0)(line).tolist() == [0.5]


def test_places_that_are_left_are_shared():
    values = torch.tensor([[1.0, 2.0, 2.0, 2.0], [5.0, 1.0, 9.0, 1.0 + 1e-9]])
    within = torch.full((2, 4), 1e-6)
    assert smallest(values, 2, within).tolist() == [pytest.approx([1, 1 / 3, 1 / 3, 1 / 3]), [0, 1, 0, 1]]


def test_centred_clipping_is_that_of_the_paper():
    updates, centre, radius = make("normal", 8, 10, dtype=torch.float64), torch.zeros(10, dtype=torch.float64), 2.0
    for _ in range(3):
        pulls = [(u - centre) * min(1.0, radius / float((u - centre).norm())) for u in updates]
        centre = centre + torch.stack(pulls).mean(dim=0)
    assert_close(CentredClipping(radius=radius, iterations=3)(updates), centre, 1e-12)


def test_a_radius_beyond_all_clients_clips_nobody():
    updates = make("normal", 8, 10)
    used, found = stream(CentredClipping(radius=1e6), updates)
    assert_close(found, Mean()(updates), 1e-5)
    assert used.diagnostics["clipped"] == 0


def test_trust_is_that_of_the_paper():
    """Whose update the root's is comes from whoever knows the clients."""
    updates = make("normal", 6, 10, dtype=torch.float64)
    root = updates[4]
    trust = [max(0.0, float(u @ root / u.norm() / root.norm())) for u in updates]
    expected = sum(t * u * root.norm() / u.norm() for t, u in zip(trust, updates, strict=True)) / sum(trust)
    used = filled(RootTrust(client=70), updates)
    used.clients = [10, 20, 30, 40, 70, 80]
    assert_close(used.finish(), expected, 1e-12)
    assert used.diagnostics["trust"] == pytest.approx(trust)
    assert_close(RootTrust(client=4)(updates), expected, 1e-12)


@every_robust_rule
def test_without_the_client_that_is_trusted_there_is_no_step(rule):
    if rule.trusted is None:
        pytest.skip("trusts nobody in particular")
    for clients in ([1, 2, 3], []):
        used = filled(rule, make("normal", len(clients), 5))
        used.clients = clients
        assert used.finish().tolist() == [0.0] * 5


def test_a_root_at_rest_leads_nowhere():
    assert RootTrust()(torch.tensor([[0.0, 0.0], [1.0, 2.0]])).tolist() == [0, 0]


def test_neighbours_keep_the_numbers_of_their_clients():
    updates = make("normal", 6, 10, dtype=torch.float64)
    before = NearestNeighbours(attackers=2, rule=RootTrust(client=70))
    shares, _ = before.mixes(filled(before, updates).rows, [1.0] * 6, seed=0)
    used = filled(before, updates)
    used.clients = [10, 20, 30, 40, 70, 80]
    assert_close(used.finish(), RootTrust(client=4)(shares @ updates), 1e-12)


# What a rule sees ---------------------------------------------------------------------------------------------------


def test_groups_are_drawn_anew_for_each_seed():
    updates, found = make("normal", 8, 10), set()
    for seed in range(5):
        drawn = filled(Bucketing(rule="median"), updates)
        drawn.seed = seed
        found.add(tuple(drawn.finish().tolist()))
    assert len(found) == 5


def test_groups_have_each_client_once():
    """Powers of two tell who is in a sum; the last group is smaller and counts less in a mean."""
    updates = torch.tensor([[2.0**i] for i in range(7)])
    assert_close(Bucketing(size=3)(updates), Mean()(updates), 1e-5)
    rows = filled(Bucketing(size=3), updates).rows
    shares, weights = Bucketing(size=3).mixes(rows, [1.0] * 7, seed=1)
    assert weights == [3, 3, 1]
    sums = [round(float(mean) * weight) for mean, weight in zip(shares @ updates.double(), weights, strict=True)]
    assert sum(sums) == 2**7 - 1
    assert [number.bit_count() for number in sums] == [3, 3, 1]


def test_a_group_of_one_is_a_client():
    updates = make("normal", 7, 10)
    assert torch.equal(Bucketing(size=1, rule="median")(updates), Median()(updates))


def test_neighbours_are_the_nearest():
    updates = torch.tensor([[0.0], [1.0], [3.0], [900.0]], dtype=torch.float64)
    rows = filled(NearestNeighbours(attackers=1), updates).rows
    shares, _ = NearestNeighbours(attackers=1).mixes(rows, [1.0] * 4, seed=0)
    assert (shares @ updates).flatten().tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, 904 / 3])


def test_the_norm_of_the_middle_client_bounds_all():
    updates = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-300.0, 400.0]])
    rows = filled(NormClipping(), updates).rows
    shares, _ = NormClipping().mixes(rows, [1.0] * 3, seed=0)
    assert (shares.float() @ updates).flatten().tolist() == pytest.approx([1, 0, 0, 2, -1.2, 1.6])
    shares, _ = NormClipping(norm=1.0).mixes(rows, [1.0] * 3, seed=0)
    assert (shares.float() @ updates).norm(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_clipping_before_a_mean_compares_no_pairs(monkeypatch):
    """Lengths are enough, and their cost does not grow with the square of the clients."""
    updates = make("normal", 5, 10)
    expected = NormClipping()(updates)
    monkeypatch.setattr(_gram, "gram", None)
    assert torch.equal(NormClipping()(updates), expected)


@pytest.mark.parametrize("rule", ["median", "krum", "mean", "masked", "harmonised", "elected"])
@pytest.mark.parametrize(
    "before", [Bucketing(size=3), NearestNeighbours(attackers=2), NormClipping(), NormClipping(norm=2.0)], ids=title
)
def test_a_rule_sees_what_is_made_of_updates(before, rule):
    """However it takes its rows: in blocks, as a Gram matrix, as a combination, or one by one."""
    updates = make("normal", 8, 700, dtype=torch.float64)
    shares, weights = before.mixes(filled(before, updates).rows, [1.0] * 8, seed=0)
    expected = rules.get(rule)()(shares @ updates, torch.tensor(weights))
    assert_close(before.model_copy(update={"rule": rules.get(rule)()})(updates), expected, 1e-12)


def test_groups_of_updates_that_cancel_out_are_at_rest():
    """Their squares, told from products of clients, are rounding errors and may be negative."""
    updates = torch.tensor([[0.3923], [-0.2236]])
    for rule in (NearestNeighbours(), "geometric_median", "harmonised", "conflict_free"):
        assert_close(NormClipping(rule=Bucketing(rule=rule))(updates), torch.zeros(1), 1e-6)


def test_what_was_made_of_updates_is_made_into_more():
    updates = make("normal", 9, 700, dtype=torch.float64)
    inner, outer = NearestNeighbours(attackers=2), NormClipping(norm=3.0)
    shares, _ = outer.mixes(filled(outer, updates).rows, [1.0] * 9, seed=0)
    clipped = shares @ updates
    for rule in ("median", "krum", "mean", "masked"):
        nested = NormClipping(norm=3.0, rule=NearestNeighbours(attackers=2, rule=rule))
        assert_close(nested(updates), inner.model_copy(update={"rule": rules.get(rule)()})(clipped), 1e-12)


def test_the_mask_of_the_rule_behind_is_split_off():
    unmasked, mask = filled(NormClipping(rule="dampened"), torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -1.0]])).split()
    assert mask.tolist() == pytest.approx([1, 1 / 3])
    assert unmasked.tolist() == pytest.approx([3, 1 / 3])


# What is refused ----------------------------------------------------------------------------------------------------


def test_a_nested_rule_is_a_name_or_a_table():
    by_name, by_table = (
        parse(rules, {"name": "bucketing", "size": 2, "rule": rule})
        for rule in ("trimmed_mean", {"name": "trimmed_mean", "share": 0.2})
    )
    assert by_name == by_table == Bucketing(size=2, rule=TrimmedMean(share=0.2))
    assert parse(rules, by_name.model_dump()) == by_name


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"name": "trimmed_mean", "share": 0.5},
            "rule 'trimmed_mean': share: input should be less than 0.5",
        ),
        ({"name": "krum", "attackers": -1}, "rule 'krum': attackers: input should be greater than or equal to 0"),
        ({"name": "multi_krum", "selected": 0}, "rule 'multi_krum': selected: input should be greater than or equal"),
        ({"name": "bucketing", "size": 0}, "rule 'bucketing': size: input should be greater than or equal to 1"),
        ({"name": "centred_clipping", "iterations": 0}, "iterations: input should be greater than or equal to 1"),
        ({"name": "centred_clipping", "radius": 0}, "radius: input should be greater than 0, found 0"),
        ({"name": "norm_clipping", "norm": float("inf")}, "norm: input should be a finite number, found inf"),
        ({"name": "bucketing", "rule": "medain"}, "unknown rule 'medain'; did you mean 'median'?"),
    ],
)
def test_settings_that_never_work_are_refused(table, message):
    with pytest.raises(ConfigError) as caught:
        parse(rules, table)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "clients", "message"),
    [
        (Krum(attackers=4), 10, "rule 'krum', attackers = 4: expected at least 11 clients in a round, found 10"),
        (
            MultiKrum(attackers=1),
            4,
            "rule 'multi_krum', attackers = 1: expected at least 5 clients in a",
        ),
        (
            MultiKrum(attackers=1, selected=9),
            9,
            "rule 'multi_krum', selected = 9: expected at most 8, the clients of a round without attackers",
        ),
        (
            NearestNeighbours(attackers=5),
            10,
            "rule 'nearest_neighbours', attackers = 5: expected less than half of the 10 clients of a round",
        ),
        (Bucketing(size=4), 3, "rule 'bucketing', size = 4: expected at most the clients of a round, found 3"),
        (
            Bucketing(size=2, rule=Krum(attackers=2)),
            12,
            "rule 'krum', attackers = 2: expected at least 7 clients in a round, found 6",
        ),
        (Bucketing(rule=RootTrust()), 9, "rule 'bucketing': expected a rule that trusts no single client"),
        (NormClipping(rule=Bucketing(size=4)), 3, "rule 'bucketing', size = 4: expected at most"),
        (NearestNeighbours(rule=Bucketing(size=4)), 3, "rule 'bucketing', size = 4: expected at most"),
    ],
    ids=title,
)
def test_settings_that_cannot_work_in_such_a_round_are_refused(rule, clients, message):
    with pytest.raises(ConfigError) as caught:
        rule.check(clients)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("rule", RULES, ids=title)
def test_other_settings_pass(rule):
    rule.check(20)


def test_settings_that_just_work_pass():
    Krum(attackers=4).check(11)
    MultiKrum(attackers=4, selected=7).check(11)
    NearestNeighbours(attackers=4).check(9)
    Bucketing(size=3).check(3)
    Krum().check(1)


# ByzFL ---------------------------------------------------------------------------------------------------------------

RECORDED = [
    (torch.tensor(case["updates"], dtype=torch.float64), answer["rule"], torch.tensor(answer["result"]).double())
    for case in json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]
    for answer in case["answers"]
]


@pytest.mark.parametrize(("updates", "table", "result"), RECORDED, ids=lambda value: title(value)[:60])
def test_byzfl_finds_the_same(updates, table, result):
    rule = parse(rules, dict(table))
    rule.check(len(updates))
    assert_close(rule(updates), result, 1e-6 * float(updates.abs().max()))
