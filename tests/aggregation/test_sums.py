"""Rules that can do with sums of updates, and rules that cannot."""

import pytest
import torch

from fedpace.aggregation import Sums, rules
from fedpace.core import ConfigError

ROWS = torch.tensor([[1.0, -2.0, 0.0, 3.0], [1.0, 2.0, 0.0, 3.0], [-4.0, -2.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.5]])
WEIGHTS = (1.0, 2.0, 3.0, 4.0)


def streams():
    return {name: rules.get(name)().start(4, 4) for name in rules.names()}


ABLE = [rule for rule in (rules.get(name)() for name in rules.names()) if rule.beyond_sums is None]
ABLE += [rules.get(name)(agreement_weights="samples") for name in ("masked", "and_mask")]


def sums(quantities):
    """The sums of all rows, of nothing but these quantities."""
    weighted = ROWS.double() * torch.tensor(WEIGHTS)[:, None]
    signs = torch.sign(ROWS)
    known = {
        "signs": signs.sum(0).long(),
        "votes": (signs * torch.tensor(WEIGHTS)[:, None]).sum(0),
        "sizes": weighted.abs().sum(0),
    }
    told = {name: known[name] for name in quantities}
    return Sums(weighted.sum(0), told.pop("signs", None), 4, sum(WEIGHTS), **told)


@pytest.mark.parametrize("rule", ABLE, ids=repr)
def test_sums_end_as_the_updates_do(rule):
    """Each rule says which sums it needs, and needs no others."""
    one_by_one, at_once = rule.start(4, 4), rule.start(4, 4)
    for row, weight in zip(ROWS, WEIGHTS, strict=True):
        one_by_one.add(row, weight)
    at_once.absorb(sums(rule.quantities))
    assert torch.allclose(one_by_one.finish(), at_once.finish())
    assert one_by_one.diagnostics == pytest.approx(at_once.diagnostics)


@pytest.mark.parametrize("name", [name for name in rules.names() if rules.get(name)().beyond_sums is not None])
def test_other_rules_say_what_they_need(name):
    stream = streams()[name]
    with pytest.raises(ConfigError, match="needs each client's own update, found sums"):
        stream.absorb(Sums(torch.zeros(4), torch.zeros(4), 4, 4.0))


@pytest.mark.parametrize("name", ["masked", "magnitude_dampened"])
def test_sums_that_nobody_asked_for_are_missed(name):
    with pytest.raises(ConfigError, match="which nobody asked for"):
        streams()[name].absorb(sums(()))
