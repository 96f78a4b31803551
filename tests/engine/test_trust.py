"""A client that a rule trusts is one of the federation, honest, and in every round."""

import pytest
import torch

from fedpace.aggregation import Mean, Median, RootTrust
from fedpace.attacks import SignFlip
from fedpace.core import ConfigError
from fedpace.engine import Attackers, Cohort, Serial, train
from fedpace.server import Exchange, Schedule, Stage
from tests.engine.small import federation, module, plan, weights


def trusting(client):
    return Schedule(base=Stage(name="root", exchanges=(Exchange(rule=RootTrust(client=client)),)))


def outcome(client, **changes):
    settings = {"schedule": trusting(client), "rounds": 2, "executor": Serial()}
    return train(module(), federation(), plan(**{**settings, **changes}))


def test_the_trusted_client_is_found_among_those_of_a_round():
    found = outcome(2)
    assert found.warnings == []
    assert not torch.equal(weights(found.module), weights(outcome(3).module))
    assert [record.diagnostics["trust"][2] for record in found.records] == pytest.approx([1, 1])


def test_rounds_without_it_take_no_step():
    found = outcome(2, cohort=Cohort(number=2), rounds=4)
    assert found.warnings == [
        "stage 'root': rule 'root_trust' trusts client 2: rounds without that client take no step"
    ]
    led = [any(record.diagnostics["trust"]) for record in found.records]
    assert led == [2 in record.cohort for record in found.records]
    assert any(led)
    assert not all(led)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (5, "stage 'root': rule 'root_trust' trusts client 5: expected one from 0 to 4"),
        (0, "stage 'root': rule 'root_trust' trusts client 0, who is an attacker: expected an honest one, such as 2"),
    ],
)
def test_nobody_and_attackers_are_not_trusted(client, message):
    with pytest.raises(ConfigError) as caught:
        outcome(client, attackers=Attackers(frozenset({0, 1}), SignFlip(), seed=0))
    assert str(caught.value) == message


def lied_to(rule, liars):
    schedule = Schedule(base=Stage(exchanges=(Exchange(rule=rule),)))
    return outcome(2, schedule=schedule, attackers=Attackers(frozenset(range(liars)), SignFlip(), seed=0))


def test_more_liars_than_honest_clients_are_refused_where_a_rule_is_to_bear_them():
    message = "attackers: 3 of 5 clients lie, more than are honest, and rule 'median' bears at most 2"
    with pytest.raises(ConfigError, match=f"^{message}$"):
        lied_to(Median(), 3)
    assert lied_to(Median(), 2).records
    assert lied_to(Mean(), 3).records  # which is to bear nobody
    assert lied_to(RootTrust(client=4), 3).records
