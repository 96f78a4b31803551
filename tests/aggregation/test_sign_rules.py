"""Agreement of signs: thresholds are met on integers, and the mean is shortened but never turned."""

from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import AndMask, Dampened, Masked, Mean, SignSum, highest_below, threshold_count
from tests.aggregation.inputs import make, matrices, weighted
from tests.aggregation.properties import filled, stream

SIGN_RULES = [
    Dampened(),
    *(Masked(tau=tau) for tau in (0.0, 0.1, 0.4, 0.75, 1.0)),
    *(AndMask(tau=tau) for tau in (0.1, 0.4, 1.0)),
    Masked(threshold="strict"),
    AndMask(threshold="strict", agreement_weights="samples"),
]
every_sign_rule = pytest.mark.parametrize("rule", SIGN_RULES, ids=repr)


def split(positive, negative, size=3):
    """Clients of which some say +, some say −, with different lengths and a mean that is not zero."""
    signs = torch.tensor([1.0] * positive + [-1.0] * negative)
    return signs[:, None] * torch.arange(1.0, size + 1) * torch.linspace(1.5, 0.5, len(signs))[:, None]


def agreement(updates):
    """|Σ sgn| / N by counting in Python, as fractions."""
    return [Fraction(abs(sum((x > 0) - (x < 0) for x in column)), len(updates)) for column in updates.T.tolist()]


# Definitions ---------------------------------------------------------------------------------------------------------


@given(weighted())
def test_dampened_is_the_mean_times_the_agreement(given_input):
    updates, weights = given_input
    expected = Mean()(updates, weights) * torch.tensor([float(a) for a in agreement(updates)])
    assert torch.equal(Dampened()(updates, weights), expected)


@given(weighted(), st.integers(0, 100))
def test_masked_is_the_mean_where_agreement_reaches_tau(given_input, percent):
    updates, weights = given_input
    mask = [1.0 if a >= Fraction(percent, 100) else float(a) for a in agreement(updates)]
    expected = Mean()(updates, weights) * torch.tensor(mask)
    assert torch.equal(Masked(tau=percent / 100)(updates, weights), expected)


@given(weighted(), st.integers(0, 100))
def test_the_and_mask_is_the_mean_where_agreement_reaches_tau(given_input, percent):
    updates, weights = given_input
    mask = [float(a >= Fraction(percent, 100)) for a in agreement(updates)]
    expected = Mean()(updates, weights) * torch.tensor(mask)
    assert torch.equal(AndMask(tau=percent / 100)(updates, weights), expected)


@given(weighted(), st.integers(0, 100))
def test_a_strict_threshold_must_be_exceeded(given_input, percent):
    updates, weights = given_input
    passed = [a > Fraction(percent, 100) for a in agreement(updates)]
    soft = [1.0 if p else float(a) for p, a in zip(passed, agreement(updates), strict=True)]
    for rule, mask in ((Masked, soft), (AndMask, [float(p) for p in passed])):
        found = rule(tau=percent / 100, threshold="strict")(updates, weights)
        assert torch.equal(found, Mean()(updates, weights) * torch.tensor(mask))


@pytest.mark.parametrize("threshold", ["inclusive", "strict"])
@given(given_input=weighted(), percent=st.integers(0, 100))
def test_votes_may_be_weighted_by_samples(threshold, given_input, percent):
    updates, weights = given_input
    sizes = [1] * len(updates) if weights is None or not weights.sum() else [int(n) for n in weights]
    tau = Fraction(percent, 100)
    votes = [
        Fraction(abs(sum(n * ((x > 0) - (x < 0)) for n, x in zip(sizes, column, strict=True))), sum(sizes))
        for column in updates.T.tolist()
    ]
    mask = [1.0 if a > tau or (a == tau and threshold == "inclusive") else float(a) for a in votes]
    rule = Masked(tau=percent / 100, agreement_weights="samples", threshold=threshold)
    assert torch.equal(rule(updates, weights), Mean()(updates, weights) * torch.tensor(mask))


@pytest.mark.parametrize(
    ("sizes", "tau"), [((7, 3), 0.4), ((0.7, 0.3), 0.4), ((1, 1), 0.0), ((65, 15, 20), 0.3), ((5, 0), 1.0)], ids=str
)
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e6])
def test_samples_that_agree_to_exactly_tau(sizes, tau, scale):
    sizes = torch.tensor(sizes, dtype=torch.float64) * scale
    updates = torch.tensor([[2.0], [-1.0], [-1.0]])[: len(sizes)]
    for threshold, passed in (("inclusive", 1), ("strict", 0)):
        rule = AndMask(tau=tau, agreement_weights="samples", threshold=threshold)
        assert filled(rule, updates, sizes).split()[1].item() == passed


def test_many_samples_are_counted_exactly():
    """Sums of sample counts beyond 2²⁴, where single precision loses ones."""
    sizes = torch.tensor([70_000_000.0, 30_000_000.0], dtype=torch.float64)
    updates = torch.tensor([[1.0], [-1.0]])
    met, missed = (filled(Masked(agreement_weights="samples"), updates, n).split()[1] for n in (sizes, sizes + 1))
    assert met.item() == 1.0
    assert missed.item() == pytest.approx(0.4)


@given(matrices())
def test_signs_have_no_order(updates):
    there, back = (stream(Dampened(), u)[0].signs.sum for u in (updates, updates.flip(0)))
    assert torch.equal(there, back)
    assert not there.is_floating_point()


@given(matrices())
def test_agreement_is_a_multiple_of_one_client(updates):
    signs = stream(Dampened(), updates)[0].signs
    assert [Fraction(int(count), len(updates)) for count in signs.counts()] == agreement(updates)
    assert signs.mean_agreement() == pytest.approx(float(sum(agreement(updates)) / updates.shape[1]))
    histogram = [sum(a * len(updates) == k for a in agreement(updates)) for k in range(len(updates) + 1)]
    assert signs.histogram() == histogram


@given(matrices(families=("normal", "dominant", "opposite", "equal")))
def test_without_zeros_agreement_has_the_parity_of_the_clients(updates):
    assert (stream(Dampened(), updates)[0].signs.counts() % 2 == len(updates) % 2).all()


def test_parts_of_the_counts():
    signs = stream(Dampened(), torch.tensor([[1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]))[0].signs
    assert signs.counts().tolist() == [2, 2, 0]
    assert signs.counts(slice(1, 3)).tolist() == [2, 0]
    assert signs.histogram(slice(1, 3)) == [1, 0, 1]
    assert SignSum(3, 2).mean_agreement() == 0


# Invariants ----------------------------------------------------------------------------------------------------------


@every_sign_rule
@given(given_input=weighted())
def test_never_longer_than_the_mean_and_never_against_it(rule, given_input):
    mean, result = Mean()(*given_input), rule(*given_input)
    assert (result.abs() <= mean.abs()).all()
    assert (result * mean >= 0).all()


@every_sign_rule
@given(updates=matrices())
def test_full_agreement_is_the_mean(rule, updates):
    agreed = updates.abs() * updates[0].sign().where(updates[0] != 0, torch.ones(()).to(updates))
    agreed = agreed + agreed.sign().sum(0).sign() * 0.5  # no zeros where anyone moves
    assert torch.equal(rule(agreed), Mean()(agreed))


@pytest.mark.parametrize("rule", [rule for rule in SIGN_RULES if rule != Masked(tau=0.0)], ids=repr)
@pytest.mark.parametrize("half", [1, 3, 50, 100])
def test_an_even_split_freezes(rule, half):
    assert Mean()(split(half, half)).abs().min() > 0.1
    assert torch.equal(rule(split(half, half)), torch.zeros(3))


@given(matrices(), st.integers(0, 1000))
def test_agreement_ignores_how_far_a_client_moved(updates, seed):
    lengths = 0.01 + torch.rand(len(updates), 1, generator=torch.Generator().manual_seed(seed)) * 100
    (before, _), (after, _) = stream(Dampened(), updates), stream(Dampened(), updates * lengths.to(updates))
    assert torch.equal(before.signs.sum, after.signs.sum)


@given(weighted())
def test_agreement_ignores_sample_counts(given_input):
    updates, weights = given_input
    (plain, _), (counted, _) = stream(Dampened(), updates), stream(Dampened(), updates, weights)
    assert torch.equal(plain.signs.sum, counted.signs.sum)
    assert plain.diagnostics["mean_factor"] == counted.diagnostics["mean_factor"]


@every_sign_rule
@given(given_input=weighted())
def test_negated_updates_negate_the_result(rule, given_input):
    updates, weights = given_input
    assert torch.equal(rule(-updates, weights), -rule(updates, weights))


@given(weighted())
def test_a_higher_threshold_never_lets_more_through(given_input):
    lengths = [Masked(tau=percent / 10)(*given_input).abs() for percent in range(11)]
    assert all((low >= high).all() for low, high in pairwise(lengths))


@pytest.mark.parametrize("rule", [Masked, AndMask])
@pytest.mark.parametrize("votes", ["uniform", "samples"])
@given(given_input=weighted())
def test_a_mask_falls_as_its_threshold_rises(rule, votes, given_input):
    masks = [
        filled(rule(tau=tenths / 10, threshold=threshold, agreement_weights=votes), *given_input).split()[1]
        for tenths in range(11)
        for threshold in ("inclusive", "strict")
    ]
    assert all((low >= high).all() for low, high in pairwise(masks))


@pytest.mark.parametrize("threshold", ["inclusive", "strict"])
@pytest.mark.parametrize("votes", ["uniform", "samples"])
@given(given_input=weighted(), tenths=st.integers(0, 10))
def test_a_soft_mask_covers_the_and_mask(threshold, votes, given_input, tenths):
    options = {"tau": tenths / 10, "threshold": threshold, "agreement_weights": votes}
    soft, hard = (filled(rule(**options), *given_input).split()[1] for rule in (Masked, AndMask))
    assert (soft >= hard).all()
    if (tenths, threshold) != (
        10,
        "strict",
    ):  # nothing exceeds 1: the hard mask is 0, the soft one the agreement itself
        assert torch.equal(soft == 1, hard == 1)


@given(weighted(families=("normal", "dominant", "opposite")))
def test_a_rescaled_and_mask_keeps_its_direction(given_input):
    plain, rescaled = (filled(AndMask(rescale=scale), *given_input) for scale in ("none", "surviving_share"))
    (mean, mask), (same, longer) = plain.split(), rescaled.split()
    surviving = mask.double().mean()
    assert torch.equal(mean, same)
    torch.testing.assert_close(longer, (mask.double() / (1e-10 + surviving)).float())
    assert rescaled.diagnostics["mean_factor"] == pytest.approx(float(surviving > 0))
    assert rescaled.diagnostics["below_tau"] == plain.diagnostics["below_tau"]


def test_a_client_that_stands_still_lowers_the_agreement():
    moving = torch.full((2, 1), 3.0)
    assert Dampened()(moving).item() == 3.0
    assert Dampened()(torch.cat([moving, torch.zeros(1, 1)])).item() == pytest.approx(2.0 * 2 / 3)


# Thresholds on integers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [10, 20, 100, 350])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_agreement_of_exactly_tau_passes(clients, sign):
    """±1/N summed in floating point misses 0.4 at each of these sizes."""
    dominant = clients * 7 // 10
    exact, below = sign * split(dominant, clients - dominant), sign * split(dominant - 1, clients - dominant + 1)
    assert torch.equal(Masked(tau=0.4)(exact), Mean()(exact))
    assert torch.equal(Masked(tau=0.4)(below), Dampened()(below))
    assert (Masked(tau=0.4)(below).abs() < 0.4 * Mean()(below).abs()).all()


def test_threshold_count_is_the_exact_ceiling():
    wrong = [
        (percent, clients)
        for percent in range(101)
        for clients in range(1, 401)
        if threshold_count(percent / 100, clients) != ceil(Fraction(percent, 100) * clients)
    ]
    assert wrong == []


def test_the_highest_count_below_is_exact():
    for percent in range(101):
        for clients in range(1, 401):
            exact = Fraction(percent, 100) * clients
            assert highest_below(percent / 100, clients) == ceil(exact) - 1
            assert highest_below(percent / 100, clients, "strict") == floor(exact)


@pytest.mark.parametrize("clients", [10, 20, 100, 350])
def test_an_agreement_of_exactly_tau_does_not_pass_a_strict_threshold(clients):
    dominant = clients * 7 // 10
    exact, above = split(dominant, clients - dominant), split(dominant + 1, clients - dominant - 1)
    strict = Masked(tau=0.4, threshold="strict")
    assert torch.equal(strict(exact), Dampened()(exact))
    assert torch.equal(strict(above), Mean()(above))


@pytest.mark.parametrize("clients", [1, 127, 128])
def test_nothing_exceeds_full_agreement(clients):
    updates = torch.ones(clients, 2)
    assert torch.equal(AndMask(tau=1.0, threshold="strict")(updates), torch.zeros(2))
    assert torch.equal(Masked(tau=1.0, threshold="strict")(updates), torch.ones(2))


WIDTHS = {torch.int8: (1, 127), torch.int16: (128, 32_767), torch.int32: (32_768, 2**31 - 1)}


@pytest.mark.parametrize(("clients", "dtype"), [(n, dtype) for dtype, counts in WIDTHS.items() for n in counts])
def test_sign_sum_is_as_narrow_as_the_clients_allow(clients, dtype):
    assert SignSum(4, clients).sum.dtype == dtype


@pytest.mark.parametrize("clients", [126, 127, 128, 129, 300, 32_767, 32_768])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_many_clients_do_not_overflow(clients, sign):
    updates = torch.full((clients, 3), sign)
    found, result = stream(Dampened(), updates)
    assert found.signs.counts().tolist() == [clients] * 3
    assert found.signs.mean_agreement() == 1
    assert found.signs.histogram()[-1] == 3
    assert torch.equal(result, updates[0])
    assert torch.equal(Masked(tau=1.0)(updates), updates[0])


# Diagnostics ---------------------------------------------------------------------------------------------------------


def test_majority_mismatch_counts_where_a_heavy_minority_wins():
    updates = torch.tensor([[-10.0, 1.0, 0.0, 5.0], [1.0, 1.0, 0.0, -1.0], [1.0, 1.0, 0.0, 0.0]])
    found, result = stream(Masked(tau=0.3), updates)
    assert found.diagnostics["majority_mismatch"] == 1 / 4
    assert found.diagnostics["mean_factor"] == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert result[0] == pytest.approx(-8 / 3)  # the mean's sign, though two of three oppose it


@pytest.mark.parametrize(("threshold", "below"), [("inclusive", 1 / 4), ("strict", 3 / 4)])
def test_the_share_below_tau(threshold, below):
    updates = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0, -1.0, 0.0, -1.0], [1.0, 1.0, 0.0, -1.0]])
    tau = {"inclusive": 1 / 4, "strict": 1 / 2}[threshold]  # agreements 1, 1/2, 1/4, 0
    for rule in (Masked, AndMask):
        found, _ = stream(rule(tau=tau, threshold=threshold), updates)
        assert found.diagnostics["below_tau"] == below


def test_weights_can_turn_the_mean_against_the_majority():
    updates = torch.tensor([[-1.0], [1.0], [1.0]])
    assert stream(Dampened(), updates)[0].diagnostics["majority_mismatch"] == 0
    assert stream(Dampened(), updates, torch.tensor([5.0, 1.0, 1.0]))[0].diagnostics["majority_mismatch"] == 1


def test_agreement_is_no_mismatch():
    updates = make("equal", clients=4, size=9)
    assert stream(Dampened(), updates)[0].diagnostics == {
        "mean_factor": 1.0,
        "majority_mismatch": 0.0,
        "below_tau": 0.0,
    }
