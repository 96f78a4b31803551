import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedpace.core import ConfigError, numpy_stream
from fedpace.engine import Cohort
from fedpace.engine.cohort import MANY


def test_all_clients_by_default():
    assert Cohort().sample(4, seed=0, round_number=0) == [0, 1, 2, 3]


@given(
    clients=st.integers(1, 50), fraction=st.floats(0.01, 1.0), seed=st.integers(0, 9), round_number=st.integers(0, 99)
)
def test_a_cohort_is_sorted_distinct_and_of_the_right_size(clients, fraction, seed, round_number):
    cohort = Cohort(fraction=fraction).sample(clients, seed=seed, round_number=round_number)
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(range(clients))
    assert len(cohort) == Cohort(fraction=fraction).size(clients) >= 1
    assert abs(len(cohort) - fraction * clients) < 1


def test_rounds_and_seeds_draw_differently_and_every_client_has_its_turn():
    draws = [tuple(Cohort(number=3).sample(10, seed=0, round_number=r)) for r in range(40)]
    assert len(set(draws)) > 20
    assert set().union(*draws) == set(range(10))
    assert draws[0] != tuple(Cohort(number=3).sample(10, seed=1, round_number=0))


def test_a_tenth_of_ten_is_one():
    assert Cohort(fraction=0.1).size(10) == 1
    assert Cohort(fraction=0.3).size(10) == 3


def test_more_clients_than_exist_are_refused():
    with pytest.raises(ConfigError, match=r"cohort\.number: 9 clients are to be sampled, but there are only 3"):
        Cohort(number=9).sample(3, seed=0, round_number=0)


@given(
    clients=st.integers(2, 30),
    late=st.integers(1, 29),
    fraction=st.sampled_from([None, 0.2, 0.7]),
    joins=st.none() | st.integers(1, 9),
    round_number=st.integers(0, 9),
)
def test_late_clients_are_as_if_they_did_not_exist_until_they_join(clients, late, fraction, joins, round_number):
    cohort, usual = Cohort(fraction=fraction, late=min(late, clients - 1), joins=joins), Cohort(fraction=fraction)
    there = clients if joins is not None and round_number >= joins else clients - cohort.late
    assert cohort.sample(clients, seed=1, round_number=round_number) == usual.sample(
        there, seed=1, round_number=round_number
    )
    assert cohort.size(clients, round_number) == usual.size(there)


def test_draws_are_those_of_all_versions():
    draws = [Cohort(number=3).sample(10, seed=0, round_number=round_number) for round_number in range(3)]
    assert draws == [[1, 2, 3], [2, 8, 9], [4, 6, 9]]


@pytest.mark.parametrize("late", [3, 4])
def test_somebody_must_be_there_from_the_start(late):
    with pytest.raises(ConfigError, match=rf"^cohort\.late: expected fewer than all 3 clients, found {late}$"):
        Cohort(late=late, joins=1).size(3)


def test_a_number_is_of_those_who_are_there_from_the_start():
    with pytest.raises(ConfigError, match="3 clients are to be sampled, but there are only 2"):
        Cohort(number=3, late=1, joins=1).size(3)


def test_nobody_joins_if_nobody_is_late():
    with pytest.raises(ValidationError, match="joins is the round of the late clients: expected late above 0"):
        Cohort(joins=4)


def test_fraction_and_number_exclude_each_other():
    with pytest.raises(ValidationError, match="not both"):
        Cohort(number=2, fraction=0.5)


@pytest.mark.parametrize("clients", [1_000, MANY])
def test_chances_of_few_clients_are_drawn_one_by_one(clients):
    drawn = Cohort(number=50).sample_by_chance(clients, seed=0, round_number=2)
    numbers = numpy_stream(0, "cohort", 2).random(clients)
    assert drawn == [client for client, number in enumerate(numbers) if number < 50 / clients]


def test_of_very_many_clients_as_many_take_part_as_by_chance():
    cohort, clients = Cohort(number=50), 1_000_000
    draws = [cohort.sample_by_chance(clients, seed=0, round_number=number) for number in range(200)]
    assert all(draw == sorted(set(draw)) for draw in draws)
    everyone = np.concatenate(draws)
    assert (everyone.min() >= 0, everyone.max() < clients) == (True, True)
    sizes = np.array([len(draw) for draw in draws])
    assert abs(sizes.mean() - 50) < 5 * (50 / 200) ** 0.5
    assert 0.6 < sizes.var() / 50 < 1.5  # that of a Poisson distribution
    assert abs(everyone.mean() / clients - 0.5) < 5 / (12 * len(everyone)) ** 0.5
    assert draws[3] == cohort.sample_by_chance(clients, seed=0, round_number=3) != draws[4]


def test_a_cohort_of_a_million_takes_no_memory_for_each():
    tracemalloc.start()
    cohorts = [
        Cohort(number=50).sample(1_000_000, seed=0, round_number=0),
        Cohort(number=50).sample_by_chance(1_000_000, seed=0, round_number=0),
    ]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(cohort) > 20 for cohort in cohorts] == [True, True]
    assert most < 100_000
