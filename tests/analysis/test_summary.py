from math import isnan

import pytest

from fedpace.analysis import StageWindow, similarity_curve, stage_windows, summarise
from fedpace.core import RoundRecord, Similarity


def similarities(record, means):
    return [record(i, similarity=None if mean is None else {"mean": mean}) for i, mean in enumerate(means)]


def test_constant_curve_has_its_constant_as_area(curve):
    summary = summarise(curve([0.4] * 7))
    assert (summary.final, summary.best) == (0.4, 0.4)
    assert summary.auc == pytest.approx(0.4)
    assert summary.last10 == pytest.approx(0.4)


def test_area_is_the_trapezoid_over_unevenly_measured_rounds(curve):
    # rounds 1, 2, 5: (0.2 + 0.4) / 2 * 1 + (0.4 + 0.1) / 2 * 3 = 1.05, over 4 rounds
    summary = summarise(curve([None, 0.2, 0.4, None, None, 0.1, None]))
    assert summary.auc == pytest.approx(1.05 / 4)
    assert (summary.final, summary.best, summary.rounds) == (0.1, 0.4, 7)


def test_one_measured_round_is_its_own_area(curve):
    assert summarise(curve([None, 0.3, None])).auc == 0.3


def test_last10_takes_the_last_ten_measured_rounds(curve):
    # measured: 0.00, 0.02, .., 0.28; the last ten are 0.10 .. 0.28
    accuracies = [number / 100 if number % 2 == 0 else None for number in range(30)]
    assert summarise(curve(accuracies)).last10 == pytest.approx(0.19)


def test_similarity_averages_measured_rounds_only(record):
    history = similarities(record, [None, 0.5, None, -0.1, None])
    assert summarise(history).similarity == pytest.approx(0.2)


def test_similarity_filled_forward_then_back(record):
    # .5 (back), .5, .5 (forward), -.1, -.1 (forward)
    history = similarities(record, [None, 0.5, None, -0.1, None])
    assert summarise(history, fill="ffill_bfill").similarity == pytest.approx(1.3 / 5)


def test_similarity_of_a_cohort_of_one_is_not_measured(record):
    alone = RoundRecord(round=0, similarity=Similarity(mean=float("nan")))
    assert similarity_curve([alone, *similarities(record, [0.25, 0.5])[1:]]) == {1: 0.5}


@pytest.mark.parametrize("fill", ["none", "ffill_bfill"])
def test_nothing_measured_is_nan(curve, fill):
    summary = summarise(curve([None, None]), fill)
    assert all(isnan(x) for x in (summary.final, summary.best, summary.last10, summary.auc, summary.similarity))
    assert summary.rounds == 2


def test_no_rounds_at_all():
    summary = summarise([])
    assert isnan(summary.final)
    assert (summary.rounds, summary.searched, summary.pruned, summary.bytes_up, summary.seconds) == (0, 0, 0.0, 0, 0.0)


def test_cost_search_and_pruning(record):
    history = [
        record(0, search={"accepted": True, "candidates": 8}),
        record(1, search={"accepted": False, "candidates": 4}),
        record(2, pruned=0.25),
    ]
    summary = summarise(history)
    assert (summary.accepted, summary.searched, summary.pruned) == (1, 12, 0.25)
    assert (summary.bytes_up, summary.bytes_down, summary.seconds) == (300, 600, 6.0)


def test_records_survive_json(staged):
    assert summarise([RoundRecord.from_json(record.to_json()) for record in staged]) == summarise(staged)


def test_stage_windows_are_inclusive_and_repeat(staged):
    assert stage_windows(staged) == [
        StageWindow("fedavg", 0, 1),
        StageWindow("anneal", 2, 4),
        StageWindow("fedavg", 5, 5),
        StageWindow("dampen", 6, 9),
        StageWindow("prune", 10, 11),
    ]
