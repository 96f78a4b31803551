"""Intervals of paired differences: of so many pairs, or of as many as it took."""

from math import inf

import numpy as np
import pytest

from fedpace.analysis import Interval, anytime_interval, corrected_level, paired_interval


def false_alarms(interval, runs=400, pairs=40):
    """How often a sequence of pairs without effect seems to have one at some time."""
    rng = np.random.default_rng(0)
    return np.mean(
        [
            any(interval(values[:count]).excludes_zero for count in range(2, pairs + 1))
            for values in rng.normal(size=(runs, pairs))
        ]
    )


def test_looking_after_every_pair_cheats_with_students_interval_and_not_with_the_sequence():
    assert false_alarms(paired_interval) > 0.2
    assert false_alarms(anytime_interval) < 0.05


def test_the_sequence_finds_an_effect_and_narrows():
    rng = np.random.default_rng(1)
    values = list(rng.normal(1.0, 1.0, size=200))
    assert anytime_interval(values[:40]).low > 0
    assert anytime_interval(values).width < anytime_interval(values[:40]).width


@pytest.mark.parametrize("count", [5, 10, 30, 100])
def test_the_sequence_is_wider_than_students_interval(count):
    values = list(np.random.default_rng(count).normal(size=count))
    ours, students = anytime_interval(values), paired_interval(values)
    assert ours.mean == students.mean
    assert students.width < ours.width < 4 * students.width


def test_the_bound_is_where_the_bayes_factor_is_one_over_alpha():
    values = np.random.default_rng(3).normal(size=12)
    interval, n = anytime_interval(list(values), 0.9), 12
    t = (interval.high - interval.mean) / (values.std(ddof=1) / np.sqrt(n))
    factor = (1 + n) ** -0.5 * ((1 + t**2 / (n - 1)) / (1 + t**2 / ((1 + n) * (n - 1)))) ** (n / 2)
    assert factor == pytest.approx(10)


def test_a_few_pairs_bound_nothing():
    assert anytime_interval([1.0, 1.1, 0.9]) == Interval(pytest.approx(1.0), -inf, inf)
    assert not anytime_interval([1.0]).excludes_zero


def test_a_corrected_level_shares_the_error_among_effects():
    assert corrected_level(0.95, 1) == 0.95
    assert corrected_level(0.9, 4) == pytest.approx(0.975)
