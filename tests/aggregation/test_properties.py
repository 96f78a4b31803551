"""Every property on every registered rule: a new rule is tested by being registered."""

from itertools import product

import pytest
import torch
from hypothesis import example, given, settings

from fedpace.aggregation import (
    AndMask,
    Bucketing,
    CentredClipping,
    ConflictAverse,
    ConflictFree,
    ConflictFreeAuthors,
    ConflictFreeSound,
    DistanceRule,
    GramRule,
    Harmonised,
    HarmonisedProjection,
    Krum,
    Masked,
    MultiKrum,
    NearestNeighbours,
    NormClipping,
    Projected,
    Shrunk,
    TrimmedMean,
    _signs,
    rules,
)
from tests.aggregation.inputs import FAMILIES, make, weighted
from tests.aggregation.properties import (
    UNIVERSAL,
    assert_close,
    client_permutation,
    duplicates,
    equal_clients,
    homogeneity,
    per_tensor,
    single_client,
    stream,
    tolerance,
)

KEEPING, RESCALED = Harmonised(negative="keep"), AndMask(rescale="surviving_share")
BY_SAMPLES = ConflictFree(client_weights="samples", c=0.9, rescale="one_plus_c_squared")
RULES = [
    *(rules.get(name)() for name in rules.names()),
    *(Masked(tau=tau) for tau in (0.1, 0.75)),
    Masked(threshold="strict"),
    Masked(agreement_weights="samples", threshold="strict"),  # declearn's
    AndMask(tau=1.0, agreement_weights="samples"),
    RESCALED,
    KEEPING,
    BY_SAMPLES,
    TrimmedMean(share=0.4),
    Krum(attackers=1),
    MultiKrum(attackers=1, selected=2),
    CentredClipping(radius=0.5, iterations=2),
    Bucketing(size=3),
    Bucketing(rule="median"),
    NearestNeighbours(attackers=1, rule="trimmed_mean"),
    NearestNeighbours(rule="krum"),
    NearestNeighbours(attackers=1, rule="root_trust"),
    NormClipping(norm=0.5),
    NormClipping(rule="masked"),
    NormClipping(rule=Bucketing(rule=NearestNeighbours(rule="geometric_median"))),
]


def those(*kinds):
    return [rule for rule in RULES if isinstance(rule, kinds)]


CLIPPED = [rule for rule in RULES if getattr(rule, "radius", None) or getattr(rule, "norm", None)]
DRAWN = [rule for rule in those(Bucketing, NormClipping) if rule.rule.name in ("median", "bucketing")]

EXCEPTIONS = {
    (HarmonisedProjection(), client_permutation): "pairs are processed in order, and the order matters",
    (HarmonisedProjection(), duplicates): "a client is projected on what the first projection left of a copy",
    (HarmonisedProjection(), per_tensor): "conflicts are between whole vectors",
    (Projected(), client_permutation): "the order of projections is drawn for positions",
    (ConflictFreeAuthors(), client_permutation): "the order of projections is drawn for positions",
    (ConflictFreeAuthors(), homogeneity): "projections are not normalised, and the solver's tolerance is absolute",
    **{
        (rule, duplicates): "each copy is projected on every copy of whom it opposes"
        for rule in (ConflictFree(), ConflictFreeSound(), ConflictFreeAuthors(), BY_SAMPLES, Projected())
    },
    **{
        (rule, per_tensor): "conflicts are between whole vectors"
        for rule in (
            *(ConflictFree(), ConflictFreeSound(), ConflictFreeAuthors(), BY_SAMPLES),
            *(ConflictAverse(), Projected()),
        )
    },
    (Harmonised(), per_tensor): "cosines are of whole vectors",
    (KEEPING, per_tensor): "cosines are of whole vectors",
    (Shrunk(), per_tensor): "one factor for the whole vector is what makes it a control",
    (RESCALED, per_tensor): "the share that survives is that of the whole vector",
    (RESCALED, single_client): "on a zero not even one client agrees, and what survives is lengthened",
    **{
        (rule, per_tensor): "lengths and distances are those of whole vectors"
        for rule in those(DistanceRule, NearestNeighbours, NormClipping)
    },
    **{
        (rule, duplicates): "as many attackers are expected among twice as many clients, or one more"
        for rule in those(TrimmedMean, Krum, NearestNeighbours)
    },
    **{
        (rule, client_permutation): "the client that is trusted has a number"
        for rule in RULES
        if rule.trusted is not None
    },
    **{
        (rule, law): "the limit of lengths is absolute"
        for rule in CLIPPED
        for law in (homogeneity, single_client, equal_clients)
    },
    **{(rule, law): "groups are drawn for positions" for rule in DRAWN for law in (client_permutation, duplicates)},
    (RESCALED, equal_clients): "on a zero not even equal clients agree, and what survives is lengthened",
}


def title(value):
    return getattr(value, "__name__", None) or repr(value)


def bearable(rule, updates):
    """Projections that are not normalised overshoot where updates are long, and amplify rounding without bound."""
    return updates / 100 if rule == ConflictFreeAuthors() else updates


every_rule = pytest.mark.parametrize("rule", RULES, ids=title)


@pytest.mark.parametrize(
    ("rule", "law"), [(rule, law) for rule in RULES for law in UNIVERSAL if (rule, law) not in EXCEPTIONS], ids=title
)
@settings(max_examples=25)  # seventeen properties see them
@given(given_input=weighted())
@example(given_input=(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), None))  # a client that did nothing
@example(given_input=(torch.tensor([[-7.0], [3.0], [-9.0]]), None))  # collinear: projections end in zero
def test_universal(rule, law, given_input):
    updates, weights = given_input
    law(rule, bearable(rule, updates), weights)


@pytest.mark.parametrize(("rule", "law"), EXCEPTIONS, ids=title)
def test_exception_is_still_needed(rule, law):
    with pytest.raises(AssertionError):  # noqa: PT012  # in some family
        for family, clients in product(FAMILIES, (5, 3, 4, 6, 7)):
            law(rule, make(family, clients=clients, size=6, seed=1, dtype=torch.float64))


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_added_is_no_step(rule, dtype):
    for clients in (0, 3):
        result = rule.start(4, clients, dtype).finish()
        assert torch.equal(result, torch.zeros(4, dtype=dtype))
    assert torch.equal(rule(torch.empty(0, 4, dtype=dtype)), torch.zeros(4, dtype=dtype))


@every_rule
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_do_not_show(rule, family, monkeypatch):
    updates, weights = bearable(rule, make(family, clients=5, size=40)), torch.arange(1.0, 6.0)
    whole, expected = stream(rule, updates, weights)
    monkeypatch.setattr(_signs, "BLOCK", 7)
    parts, actual = stream(rule, updates, weights)
    assert_close(actual, expected, tolerance(rule, updates, weights))
    assert parts.diagnostics.keys() == whole.diagnostics.keys()
    for key, value in whole.diagnostics.items():
        if not isinstance(rule, GramRule):  # many mixes of clients can make one step
            assert parts.diagnostics[key] == pytest.approx(value, rel=1e-6, abs=1e-9)


@every_rule
def test_no_coordinates(rule):
    assert rule(torch.empty(3, 0)).shape == (0,)
