"""Which clients a round measures."""

import pytest

from fedpace.data import load
from fedpace.engine import Cohort, Measuring, Serial, train
from fedpace.methods import FedRep, LocalSGD
from fedpace.server import Schedule
from tests.engine import small


@pytest.mark.parametrize(
    ("measuring", "clients"),
    [
        (Measuring(), [3, 5]),
        (Measuring(sample=2), [3, 5]),  # of a cohort nobody is left out
        (Measuring(clients="all"), list(range(8))),
        (Measuring(clients="all", sample=8), list(range(8))),
    ],
)
def test_a_round_measures_its_cohort_or_everybody(measuring, clients):
    assert list(measuring.measured(8, [3, 5], seed=0)) == clients


def test_a_sample_stands_for_all_clients_in_every_round():
    measuring = Measuring(clients="all", sample=5)
    found = measuring.measured(1_000_000, [3], seed=0)
    assert found == sorted(set(found)) == measuring.measured(1_000_000, [4], seed=0)
    assert len(found) == 5
    assert found != measuring.measured(1_000_000, [3], seed=1)


@pytest.mark.parametrize("local", [LocalSGD(max_steps=1), FedRep(max_steps=1)])
def test_clients_with_models_of_their_own_are_sampled_too(local):
    federation = load("digits").partition("iid", clients=9, test_share=0.2)
    measuring = Measuring(clients="all", sample=4, per_client=5)
    plan = small.plan(
        schedule=Schedule(), local=local, measuring=measuring, rounds=2, cohort=Cohort(number=2), executor=Serial()
    )
    records = train(small.module(), federation, plan).records
    expected = list(measuring.everybody(9, plan.seed))
    assert [list(record.client_metrics) for record in records] == [expected] * 2
    assert len(expected) == 4


@pytest.mark.parametrize(
    ("measuring", "population", "personal", "warns"),
    [
        (Measuring(), 20_000, True, True),
        (Measuring(clients="all"), 20_000, False, True),
        (Measuring(), 20_000, False, False),
        (Measuring(), 10_000, True, False),
        (Measuring(clients="all", sample=100), 20_000, True, False),
    ],
)
def test_measuring_very_many_clients_each_round_is_warned_of(measuring, population, personal, warns):
    found = measuring.check(population, personal=personal)
    assert found == (
        ["every measured round asks all 20000 clients; measuring.sample = 1000 asks as many of them"] if warns else []
    )
