"""Frozen coordinates: those in which clients agreed least, more of them each round, and for good."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import Layout
from fedpace.server import Freezing, Pace, Schedule, ServerSGD
from tests.stages import stage_with

from .helpers import exchange, play_round, server

UPDATES = [[1.0, 1.0, 2.0, 1.0], [1.0, -1.0, -1.0, 0.5]]  # agreement 1, 0, ⅓, 1
LAYOUT = Layout(("weight",), ((4,),))


def start(share=0.5, per_round=0.25, **settings):
    freezes = Freezing(share=share, per_round=per_round)
    stage = stage_with(pace=Pace(memory=0), freezes=freezes, weights="uniform", **settings)
    return server(Schedule(base=stage), torch.zeros(4), LAYOUT), stage


def test_the_least_agreement_is_frozen_first_and_gets_no_pace():
    one, stage = start()
    assert one.frozen == 0
    exchange(one, UPDATES)
    assert one.frozen == 1
    assert (one.extras(stage.exchanges[0])["pace"] == 0).tolist() == [False, True, False, False]
    exchange(one, [[1.0, 0.0, 2.0, 1.0], [1.0, 0.0, -1.0, 0.5]])
    assert (one.extras(stage.exchanges[0])["pace"] == 0).tolist() == [False, True, True, False]
    exchange(one, UPDATES)
    assert one.frozen == 2  # never more than the share


def test_a_frozen_weight_keeps_its_value_whatever_clients_and_momentum_do():
    one, _ = start(optimizer=ServerSGD(momentum=0.9))
    exchange(one, UPDATES)
    before = one.vector.clone()
    exchange(one, [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]])
    assert one.vector[1] == before[1]
    assert (one.vector[[0, 2, 3]] != before[[0, 2, 3]]).all()


def test_where_nobody_moves_the_pace_remembers_what_it_knew():
    """Otherwise the zeros of frozen coordinates would lower the mean agreement, and speed up all the others."""
    one, stage = start(per_round=0.25, share=0.25)
    exchange(one, UPDATES)
    pace = one.extras(stage.exchanges[0])["pace"]
    exchange(one, [[1.0, 0.0, 2.0, 1.0], [1.0, 0.0, -1.0, 0.5]])
    torch.testing.assert_close(one.extras(stage.exchanges[0])["pace"], pace)


def test_a_stage_without_pace_still_respects_what_is_frozen():
    one, _ = start()
    exchange(one, UPDATES)
    plain = stage_with(weights="uniform")
    assert one.extras(plain.exchanges[0])["pace"].tolist() == [1, 0, 1, 1]
    before = one.vector.clone()
    exchange(one, UPDATES, plain)
    assert one.vector[1] == before[1]


def test_a_checkpoint_holds_what_is_frozen():
    one, stage = start()
    exchange(one, UPDATES)
    other, _ = start()
    other.load_state(one.state())
    assert other.frozen == 1
    assert torch.equal(other.extras(stage.exchanges[0])["pace"], one.extras(stage.exchanges[0])["pace"])


def test_no_update_of_a_frozen_coordinate_is_counted():
    one, _ = start(share=0.75, per_round=0.75)
    first, second = play_round(one, 0)[0], play_round(one, 1)[0]
    assert (first.frozen, second.frozen) == (0.0, 0.75)
    assert first.bytes_up - second.bytes_up == 3 * 4 * 2
    assert second.bytes_down - first.bytes_down == 4 * 4 * 2  # the model goes down whole, and now a pace with it


@given(st.integers(1, 40), st.floats(0.01, 1), st.floats(0.01, 1))
def test_what_is_frozen_only_grows_and_ends_at_the_share(size, share, per_round):
    freezing = Freezing(share=share, per_round=per_round)
    agreement = torch.rand(size, generator=torch.Generator().manual_seed(size))
    frozen = torch.zeros(size, dtype=torch.bool)
    for _ in range(60):
        wider = freezing.widened(frozen, agreement)
        assert (wider | frozen).equal(wider)
        assert wider.sum() <= share * size + 1e-9
        if wider.any() and not wider.all():
            assert agreement[wider].max() <= agreement[~wider].min()
        frozen = wider


def test_a_share_beyond_all_parameters_is_refused():
    with pytest.raises(ValueError, match="less than or equal to 1"):
        Freezing(share=1.5)
