from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.analysis import fairness, late_clients
from fedpace.core import RoundRecord

ACCURACIES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def measured(accuracies, number=0):
    return RoundRecord(round=number, client_metrics={i: {"accuracy": value} for i, value in enumerate(accuracies)})


@given(accuracies=ACCURACIES, shift=st.floats(0, 1))
def test_fairness_is_about_differences_between_clients(accuracies, shift):
    found, moved = fairness([measured(accuracies)]), fairness([measured([a + shift for a in accuracies])])
    assert min(accuracies) <= found.worst_decile + 1e-9 <= found.mean + 2e-9
    assert fairness([measured(accuracies[::-1])]).worst_decile == found.worst_decile
    assert moved.spread == pytest.approx(found.spread, abs=1e-9)
    assert moved.worst_decile == pytest.approx(found.worst_decile + shift)
    alike = fairness([measured(accuracies[:1] * 3)])
    assert (alike.spread, alike.worst_decile) == (pytest.approx(0), pytest.approx(alike.mean))


@pytest.mark.parametrize(("clients", "worst"), [(1, 0.0), (10, 0.0), (11, 0.5), (20, 0.5), (21, 1.0)])
def test_the_worst_decile_is_rounded_up(clients, worst):
    accuracies = [float(client) for client in reversed(range(clients))]  # 0, 1, 2, ... whose means are round
    assert fairness([measured(accuracies)]).worst_decile == worst


def test_the_last_round_that_measured_clients_counts():
    found = fairness([measured([0.0, 0.0]), measured([0.2, 0.6], 1), RoundRecord(round=2), RoundRecord(round=3)])
    assert (found.mean, found.spread, found.worst_decile) == pytest.approx((0.4, 0.2, 0.2))
    assert all(map(isnan, (fairness([]).mean, fairness([]).spread, fairness([RoundRecord(round=0)]).worst_decile)))


def test_late_clients_are_the_last_ones():
    run = {"config": {"cohort": {"late": 2}}, "clients": 12}
    assert late_clients(run, [measured([0.0] * 10 + [0.5, 0.7])]) == pytest.approx(0.6)
    assert late_clients(
        run, [RoundRecord(round=0, client_metrics={3: {"accuracy": 0.1}, 10: {"accuracy": 0.4}})]
    ) == pytest.approx(0.4)


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"config": None},
        {"config": {"cohort": {}}, "clients": 2},
        {"config": {"cohort": {"late": 1}}},
        {"config": {"cohort": {"late": 1}}, "clients": 3},
    ],
)
def test_without_late_clients_that_were_measured_there_is_no_accuracy_of_theirs(run):
    assert isnan(late_clients(run, [measured([0.5, 0.6])]))
