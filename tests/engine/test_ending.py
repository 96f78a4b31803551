"""What the rounds of a run say about it."""

import pytest

from fedpace.core import Dropped, RoundRecord, SearchReport
from fedpace.engine.ending import idle_search, lost_clients, standstill
from fedpace.server import Guard


def rounds(count, **values):
    return [RoundRecord(round=number, **values) for number in range(count)]


@pytest.mark.parametrize(
    ("personal", "reason"), [(False, "the model has not changed in 2 rounds: stuck"), (True, None)]
)
def test_a_model_that_stands_still_ends_a_run_unless_clients_have_their_own(personal, reason):
    assert standstill(rounds(3, used=1, still="stuck"), Guard(patience=2), 9, personal=personal) == reason
    assert standstill(rounds(1, used=1, still="stuck"), Guard(patience=2), 9, personal=personal) is None


def test_a_search_that_found_nothing_is_told_with_its_largest_gain():
    nothing = SearchReport(accepted=False, candidates=3, sim0=0.1, sim_best=0.15)
    assert idle_search(rounds(2)) is None
    message = "annealing did nothing: none of 6 perturbations was accepted (largest gain 0.05)"
    assert idle_search(rounds(2, search=nothing)) == message
    found = SearchReport(accepted=True, candidates=3)
    assert idle_search([*rounds(2, search=nothing), RoundRecord(round=2, search=found)]) is None


def test_most_clients_lost_in_most_rounds_is_told():
    lost = {"cohort": [0, 1, 2], "dropped": [Dropped(1, "nan"), Dropped(2, "late")]}
    assert lost_clients([], 2) is None
    assert lost_clients([*rounds(1, **lost), *rounds(4, cohort=[0, 1, 2])], 2) is None
    assert lost_clients(rounds(2, **lost), 2) == "most clients were dropped in 2 rounds: client 1 with 'nan'"
