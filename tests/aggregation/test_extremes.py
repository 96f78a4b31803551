"""Whatever finite numbers clients send, a rule ends in finite numbers, or refuses a wrong argument in one line."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpace.aggregation import GramRule, Masked, Mean, Mixing, SignSum, rules
from fedpace.core import ConfigError
from tests.aggregation.inputs import SEEDS
from tests.aggregation.properties import homogeneity, stream
from tests.aggregation.test_properties import EXCEPTIONS, RULES, every_rule, title

SCALES = (0.0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-16, 1e-8, 1.0, 1e4, 1e12, 1e18, 1e30, 1e38, 3e38)
WEIGHTS = (0.0, 1e-300, 1e-40, 1.0, 500.0, 1e15, 1e300)


@st.composite
def extremes(draw, scales=SCALES, weights=WEIGHTS):
    """Rows whose scales have nothing to do with one another, among them copies, zeros, and weights of that kind."""
    clients, size = draw(st.integers(1, 7)), draw(st.sampled_from((1, 2, 7, 40)))
    generator = torch.Generator().manual_seed(draw(SEEDS))
    rows = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    kind = draw(st.sampled_from(("normal", "signs", "copies", "sparse")))
    if kind == "signs":
        rows = rows.sign()
    elif kind == "copies":
        rows = rows[:1].repeat(clients, 1)
    elif kind == "sparse":
        rows[torch.rand(clients, size, generator=generator) < 0.5] = 0.0
    each = st.lists(st.sampled_from(scales), min_size=clients, max_size=clients)
    same = st.sampled_from(scales).map(lambda scale: [scale] * clients)
    rows *= torch.tensor(draw(st.one_of(each, same)), dtype=torch.float64)[:, None]
    end = torch.finfo(torch.float32).max
    chosen = draw(st.one_of(st.none(), st.lists(st.sampled_from(weights), min_size=clients, max_size=clients)))
    dtype = draw(st.sampled_from((torch.float32, torch.float64)))
    return rows.clamp(-end, end).to(dtype), None if chosen is None else torch.tensor(chosen, dtype=torch.float64)


@every_rule
@settings(max_examples=30)
@given(given_input=extremes())
@example(given_input=(torch.tensor([[3.4e38, -3.4e38], [3.4e38, -3.4e38]]), None))  # their sum is not finite
@example(given_input=(torch.tensor([[1.0], [1e-16]]), None))
@example(given_input=(torch.tensor([[1.0, 1.0], [1e18, 0.0], [0.0, -1.0]]), None))
@example(given_input=(torch.tensor([[1e-45, 1e-45], [3e38, -3e38], [-1.0, 1.0]]), torch.tensor([1e15, 1e-300, 0])))
@example(given_input=(torch.tensor([[1.0, 2.0], [3.0, 2.0]]), torch.tensor([1e-50, 1e-50], dtype=torch.float64)))
def test_finite_updates_have_a_finite_aggregate(rule, given_input):
    updates, weights = given_input
    before = updates.clone()
    result = rule(updates, weights)
    assert result.dtype == updates.dtype
    assert result.isfinite().all(), f"not finite: {result} of {updates}, {weights}"
    assert torch.equal(updates, before)


HOMOGENEOUS = [
    rule for rule in RULES if not isinstance(rule, GramRule | Mixing) and (rule, homogeneity) not in EXCEPTIONS
]


@pytest.mark.parametrize("rule", HOMOGENEOUS, ids=title)
@settings(max_examples=20)
@given(given_input=extremes(scales=(1e-8, 1.0, 1e18, 1e38, 3e38)))
def test_large_updates_have_the_aggregate_of_smaller_ones(rule, given_input):
    """The result in float32 is that of the same rows, made shorter by a power of two, in float64."""
    updates, weights = given_input[0].float(), given_input[1]
    end = torch.finfo(torch.float32).max
    expected = (rule(updates.double() * 2.0**-70, weights) * 2.0**70).clamp(-end, end)
    assert torch.allclose(rule(updates, weights).double(), expected, rtol=1e-4, atol=1e-5 * float(updates.abs().max()))


@every_rule
@settings(max_examples=20)
@given(given_input=extremes(scales=(0.0, 1e-45, 1e-8, 1.0, 1e4, 1e14), weights=(1.0, 500.0, 1e15)))
def test_what_the_guard_lets_pass_overflows_no_stream(rule, given_input):
    updates, weights = given_input
    assert stream(rule, updates.float(), weights)[1].isfinite().all()


def test_tiny_weights_are_weights():
    rows = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    assert torch.allclose(Mean()(rows, torch.tensor([2e-200, 1e-200], dtype=torch.float64)), torch.tensor([2.0, 4.0]))


@every_rule
@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (
            [1.0, -1.0],
            r"^weights: expected 2 finite values that are not negative and have a finite sum, found \[1.0, -1.0\]$",
        ),
        ([float("nan"), 1.0], r"^weights: expected 2 finite values"),
        ([1.7e308, 1.7e308], r"^weights: expected 2 finite values"),
        ([1.0], r"^weights: expected 2 finite values"),
    ],
    ids=str,
)
def test_wrong_weights_are_refused_in_one_line(rule, weights, complaint):
    with pytest.raises(ConfigError, match=complaint):
        rule(torch.ones(2, 3), torch.tensor(weights, dtype=torch.float64))


@every_rule
def test_values_whose_squares_are_no_numbers_are_refused_in_one_line(rule):
    with pytest.raises(ConfigError, match=r"^updates: expected values of at most 1e\+140, found 1e\+200$"):
        rule(torch.tensor([[1e200, 1.0]], dtype=torch.float64))


# Many clients ---------------------------------------------------------------------------------------------------------

MANY = 40_000
ROW = torch.tensor([1.0, -2.0, 0.0, 0.5])
COUNTING = [name for name in rules.names() if rules.get(name)().start(1, 1).signs is not None]


@pytest.mark.parametrize("announced", [MANY, 10], ids=["announced", "not announced"])
@pytest.mark.parametrize("name", COUNTING)
def test_forty_thousand_clients_that_agree_agree(name, announced):
    found = rules.get(name)().start(4, announced)
    for _ in range(MANY):
        found.add(ROW)
    assert torch.allclose(found.finish(), ROW)
    assert found.signs.sum.tolist() == [MANY, -MANY, 0, MANY]
    assert found.signs.mean_agreement() == 0.75
    assert found.signs.histogram()[MANY] == 3


@pytest.mark.parametrize("announced", [MANY, 3])
def test_signs_of_many_clients_that_were_summed_elsewhere(announced):
    signs = SignSum(2, announced)
    signs.absorb(torch.tensor([100, -20_000]), 20_000)
    signs.absorb(torch.tensor([100, -20_000]), 20_000)
    assert signs.sum.tolist() == [200, -MANY]
    assert Masked().start(2, announced).signs.sum.dtype == (torch.int32 if announced == MANY else torch.int8)
