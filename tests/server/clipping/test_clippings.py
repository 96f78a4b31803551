"""How long an update may be."""

from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import ConfigError, parse
from fedpace.server import Adaptive, Exchange, Fixed, Guard, Quantile, clippings

from ..helpers import THETA, server, updates

NORMS = st.lists(st.floats(0, 1e6), min_size=1, max_size=9)


def lengths(clip, norms, **guard):
    """How long updates of these norms are after a round, and the round's report."""
    rows = torch.zeros(len(norms), 6)
    rows[:, 2] = torch.tensor(norms)
    here = server(guard=Guard(clip=clip, **guard))
    used = []
    report = here.exchange(Exchange(), updates(rows), len(norms), lambda update: used.append(float(update.vector[2])))
    return used, report


def test_fixed_shortens_what_is_longer_and_keeps_its_direction():
    here = server(guard=Guard(clip=Fixed(norm=5.0)))
    report = here.exchange(Exchange(), updates([[6.0, 8, 0, 0, 0, 0], [0.0, 0, 0, 0, 3, 4]]), 2)
    assert (report.bounded.shortened, report.bounded.bound) == ([0], 5.0)
    torch.testing.assert_close(here.vector, THETA + torch.tensor([1.5, 2, 0, 0, 1.5, 2]))


def test_the_quantile_is_that_of_the_same_round():
    used, report = lengths(Quantile(quantile=0.5), [1.0, 2, 3, 4, 500])
    assert used == pytest.approx([1, 2, 3, 3, 3])
    assert (report.bounded.shortened, report.bounded.bound) == ([3, 4], 3.0)


@given(st.floats(0.05, 0.95), st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.integers(0, 12))
def test_liars_cannot_raise_a_quantile_above_the_longest_honest_update(quantile, honest, liars):
    clients = len(honest) + liars
    bound = Quantile(quantile=quantile).bound([*honest, *[1e15] * liars], None)
    assert bound <= max(honest) * (1 + 1e-9) or liars > (1 - quantile) * (clients - 1) - 1e-9


def test_who_sent_zero_has_no_say_in_the_quantile():
    assert lengths(Quantile(), [0.0, 0, 0, 2])[0] == [0, 0, 0, 2]
    assert lengths(Quantile(), [0.0, 0])[0] == [0, 0]


@pytest.mark.parametrize("name", clippings.names())
@given(norms=NORMS)
def test_nobody_is_longer_than_the_bound_and_nobody_within_it_is_touched(name, norms):
    used, report = lengths(parse(clippings, name), norms)
    bound, rounded = report.bounded.bound, torch.tensor(norms).tolist()
    assert all(after <= bound * (1 + 1e-6) for after in used)
    assert all(after == before for after, before in zip(used, rounded, strict=True) if before <= bound)
    assert report.bounded.shortened == [client for client, before in enumerate(rounded) if before > bound]


def test_adaptive_moves_towards_its_quantile():
    """Andrew et al., 2021: C ← C · exp(−η(b − γ)), and b counts the clients below C."""
    here = server(guard=Guard(clip=Adaptive(first=2.0, quantile=0.25, rate=0.5)))
    rows = torch.zeros(4, 6)
    rows[:, 0] = torch.tensor([1.0, 1.5, 2.0, 90.0])
    bounds = [here.exchange(Exchange(), updates(rows), 4).bounded.bound for _ in range(3)]
    second = 2.0 * exp(-0.5 * (3 / 4 - 0.25))
    assert bounds == pytest.approx([2.0, second, second * exp(-0.5 * (2 / 4 - 0.25))])


def test_adaptive_finds_the_quantile_of_norms_that_last():
    clip = Adaptive(first=100.0, quantile=0.8)
    bound, norms = 100.0, [i / 10 for i in range(1, 101)]
    for _ in range(500):
        bound = clip.remembers(bound, norms)
    assert bound == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_adaptive_bound_stays_a_number(share):
    bound = 1.0
    for _ in range(5000):
        bound = Adaptive().moved(bound, share)
    assert 0 < bound < float("inf")


def test_updates_and_gradients_have_bounds_of_their_own():
    here = server(guard=Guard(clip=Adaptive(first=1.0)))
    here.exchange(Exchange(), updates([[9.0] * 6]), 1)
    assert here.exchange(Exchange(sends="gradient"), updates([[9.0] * 6]), 1).bounded.bound == 1.0
    assert here.exchange(Exchange(), updates([[9.0] * 6]), 1).bounded.bound == pytest.approx(exp(0.1))


def test_an_adaptive_bound_goes_on_after_a_checkpoint_to_the_bit():
    here, later = (server(guard=Guard(clip=Adaptive(first=1.0))) for _ in range(2))
    rows = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        here.exchange(Exchange(), updates(rows), 5)
    later.load_state(here.state())
    assert here.exchange(Exchange(), updates(rows), 5).bounded == later.exchange(Exchange(), updates(rows), 5).bounded
    assert torch.equal(here.vector, later.vector)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"name": "fixed", "norm": -1}, "clipping 'fixed': norm: input should be greater than 0, found -1"),
        ({"name": "fixed", "norm": float("inf")}, "clipping 'fixed': norm: input should be a finite number, found inf"),
        (
            {"name": "quantile", "quantile": 1.0},
            "clipping 'quantile': quantile: input should be less than 1, found 1.0",
        ),
        ({"name": "quantile", "quantile": 0}, "clipping 'quantile': quantile: input should be greater than 0, found 0"),
        ({"name": "adaptive", "quantile": 2}, "clipping 'adaptive': quantile: input should be less than 1, found 2"),
        ("fixd", "unknown clipping 'fixd'; did you mean 'fixed'?"),
    ],
    ids=str,
)
def test_what_is_no_clipping_is_one_line(table, complaint):
    with pytest.raises(ConfigError) as caught:
        Guard(clip=table)
    assert str(caught.value) == complaint
