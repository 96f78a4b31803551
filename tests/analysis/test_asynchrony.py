import pytest

from fedpace.analysis import (
    cosine_by_staleness,
    cosines_by_staleness,
    metric_over_time,
    summarise,
    time_curve,
    value_at,
)
from fedpace.core import Dropped, RoundRecord, Similarity
from tests.analysis.test_show import shown

A, B, C = [[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]]


def buffered(number, staleness, matrix, **given):
    """A round whose clients have these ages."""
    similarity = None if matrix is None else Similarity(matrix=matrix)
    return RoundRecord(round=number, cohort=list(staleness), staleness=staleness, similarity=similarity, **given)


def timed(values, times):
    return [
        RoundRecord(round=number, time=time, metrics={} if value is None else {"accuracy": value})
        for number, (value, time) in enumerate(zip(values, times, strict=True))
    ]


def visible(axes):
    return [line for line in axes.lines if not line.get_label().startswith("_")]


def test_pairs_are_told_apart_by_how_much_older_one_is():
    records = [
        buffered(0, {4: 0, 7: 0, 9: 0}, [A, B, C]),
        buffered(1, {4: 3, 7: 1, 9: 1}, [A, B, C]),
        RoundRecord(round=2, cohort=[1, 2], similarity=Similarity(matrix=[[1.0, 0.9], [0.9, 1.0]])),
    ]
    assert cosines_by_staleness(records) == {0: [0.1, 0.2, 0.3, 0.3], 2: [0.1, 0.2]}


def test_clients_that_were_dropped_have_no_row():
    record = buffered(0, {4: 5, 7: 1, 9: 0}, [[1.0, 0.3], [0.3, 1.0]], dropped=[Dropped(7, "not finite")])
    assert cosines_by_staleness([record]) == {5: [0.3]}


def test_unknown_cosines_and_rounds_without_any_are_left_out():
    records = [buffered(0, {4: 5, 7: 1}, [[1.0, None], [None, 1.0]]), buffered(1, {4: 5, 7: 1}, None)]
    assert cosines_by_staleness(records) == {}


def test_means_of_few_pairs_are_not_drawn_and_those_who_begin_together_have_one_level():
    ages = [buffered(number, {1: 2, 2: 0}, [[1.0, 0.4], [0.4, 1.0]]) for number in range(20)]
    rare = buffered(20, {1: 7, 2: 0}, [[1.0, -0.9], [-0.9, 1.0]])
    together = [RoundRecord(round=0, cohort=[1, 2], similarity=Similarity(matrix=[[1.0, 0.6], [0.6, 1.0]]))]
    (axes,) = cosine_by_staleness({"old": [ages, [*ages, rare]], "new": [together], "none": [[]]}).axes
    old, new = visible(axes)
    assert list(old.get_xdata()) == [2]
    assert list(old.get_ydata()) == pytest.approx([0.4])
    assert list(new.get_ydata()) == pytest.approx([0.6, 0.6])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["old", "new"]
    assert cosine_by_staleness({"none": [[]]}).axes[0].get_legend() is None


def test_time_curve_and_what_was_measured_last():
    curve = time_curve(timed([0.1, None, 0.3], [1.0, 2.5, 4.0]))
    assert curve == {1.0: 0.1, 4.0: 0.3}
    assert [value_at(curve, time) for time in (1.0, 3.9, 4.0, 9.0)] == [0.1, 0.1, 0.3, 0.3]
    assert time_curve([RoundRecord(round=0, metrics={"accuracy": 0.5})]) == {}


def test_curves_over_time_are_of_what_was_measured_last_as_long_as_all_runs_last():
    runs = [timed([0.2, 0.4], [1.0, 3.0]), timed([0.4, 0.8], [2.0, 6.0])]
    (axes,) = metric_over_time({"a": runs, "timeless": [[RoundRecord(round=0)]]}).axes
    (line,) = visible(axes)
    times, values = line.get_xdata(), line.get_ydata()
    assert (axes.get_xlabel(), axes.get_xscale()) == ("virtual time", "log")
    assert not visible(metric_over_time({"timeless": [[RoundRecord(round=0)]]}).axes[0])
    assert (min(times), max(times)) == (pytest.approx(2.0, abs=0.05), pytest.approx(3.0, abs=0.05))
    assert values[0] == pytest.approx((0.2 + 0.4) / 2)


def test_summary_and_overview_of_virtual_time():
    records = [
        buffered(0, {1: 0, 2: 0}, None, time=1.5),
        buffered(1, {3: 4, 2: 0}, None, time=4.0),
    ]
    summary = summarise(records)
    assert (summary.time, summary.staleness) == (4.0, 1.0)
    lines = shown({}, records)
    assert "at the end 4" in lines
    assert "a round 2 on average" in lines
    assert "staleness 1.00 steps of the server on average, at most 4" in lines
    assert "oldest updates of clients 3 (4.0), 1 (0.0), 2 (0.0)" in lines
    together = shown({}, timed([0.1], [2.0]))
    assert "at the end 2" in together
    assert not any("oldest" in line for line in together)
    assert "Virtual time" not in "\n".join(shown({}, [RoundRecord(round=0)]))
