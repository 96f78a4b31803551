"""Rules that can do with sums of updates, and rules that cannot."""

import pytest
import torch

from fedpace.aggregation import Sums, rules
from fedpace.core import ConfigError

ROWS = torch.tensor([[1.0, -2.0, 0.0, 3.0], [1.0, 2.0, 0.0, 3.0], [-4.0, -2.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.5]])
WEIGHTS = (1.0, 2.0, 3.0, 4.0)


def streams():
    return {name: rules.get(name)().start(4, 4) for name in rules.names()}


@pytest.mark.parametrize("name", [name for name in rules.names() if rules.get(name)().beyond_sums is None])
def test_sums_end_as_the_updates_do(name):
    one_by_one, at_once = streams()[name], streams()[name]
    for row, weight in zip(ROWS, WEIGHTS, strict=True):
        one_by_one.add(row, weight)
    total = (ROWS.double() * torch.tensor(WEIGHTS)[:, None]).sum(0)
    at_once.absorb(Sums(total, torch.sign(ROWS).sum(0).long(), 4, sum(WEIGHTS)))
    assert torch.allclose(one_by_one.finish(), at_once.finish())
    assert one_by_one.diagnostics == pytest.approx(at_once.diagnostics)


@pytest.mark.parametrize("name", [name for name in rules.names() if rules.get(name)().beyond_sums is not None])
def test_other_rules_say_what_they_need(name):
    stream = streams()[name]
    with pytest.raises(ConfigError, match="needs each client's own update, found sums"):
        stream.absorb(Sums(torch.zeros(4), torch.zeros(4), 4, 4.0))


def test_signs_weighted_by_samples_are_more_than_sums_tell():
    rule = rules.get("masked")(agreement_weights="samples")
    assert rule.beyond_sums == "signs that are weighted by samples"
