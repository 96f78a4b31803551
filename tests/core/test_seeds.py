from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import derive, numpy_stream, torch_stream

names = st.one_of(st.text(max_size=6), st.integers())


def test_seeds_never_change():
    """Published runs depend on these numbers. If this fails, the code is wrong, not the test."""
    assert derive(0, "client", 3, 7) == 5002952259249056169
    assert derive(1) == 7818949063157315524


@given(st.integers(0, 2**31), st.lists(names, max_size=4))
def test_a_seed_is_63_bits_and_repeatable(seed, path):
    assert 0 <= derive(seed, *path) < 2**63
    assert derive(seed, *path) == derive(seed, *path)


@given(st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_different_names_are_different_streams(one, other):
    assert (derive(0, *one) == derive(0, *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("1",), (1,)),
        (("ab",), ("a", "b")),
        ((1, 2), (12,)),
        (("a", ""), ("a",)),
        (("a", 1), (1, "a")),
        ((1,), (-1,)),
        (("a", "b"), ("a/str:b",)),
    ],
    ids=repr,
)
def test_paths_that_look_alike_differ(one, other):
    assert derive(0, *one) != derive(0, *other)


def test_the_seed_is_not_a_name():
    assert derive(1, 2) != derive(2, 1)
    assert derive(0, "a") != derive(1, "a")


def test_neighbours_share_nothing():
    seeds = [
        derive(seed, "client", number, client) for seed in range(4) for number in range(20) for client in range(20)
    ]
    assert len(set(seeds)) == len(seeds)
    low_bits = sum(seed & 1 for seed in seeds)
    assert 700 < low_bits < 900  # of 1600


def test_torch_streams_repeat_and_differ():
    one, same, other = (torch.randn(50, generator=torch_stream(0, "noise", k)) for k in (1, 1, 2))
    assert torch.equal(one, same)
    assert not (one == other).any()


def test_numpy_streams_repeat_and_differ():
    one, same, other = (numpy_stream(0, "split", k).normal(size=50) for k in (1, 1, 2))
    assert (one == same).all()
    assert not (one == other).any()


def test_streams_do_not_touch_the_global_generators():
    state = torch.random.get_rng_state()
    torch.randn(5, generator=torch_stream(0, "a"))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_streams_are_independent_of_each_other():
    """Drawing more from one stream does not move another."""
    many = [numpy_stream(3, "client", client) for client in range(40)]
    many[0].normal(size=1000)
    expected = numpy_stream(3, "client", 1).normal()
    assert many[1].normal() == expected
    first = [stream.normal() for stream in (numpy_stream(3, "client", client) for client in range(40))]
    assert all(a != b for a, b in combinations(first, 2))
