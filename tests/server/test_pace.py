"""The pace of local steps follows agreement, averaged over rounds."""

import pytest
import torch

from fedpace.core import Layout
from fedpace.server import Exchange, Pace, Schedule, ShuffledPace, paces
from tests.stages import altered, stage_with

from .helpers import exchange, server

UPDATES = [[1.0, 1.0, 2.0, 0.0], [1.0, -1.0, -1.0, 0.0]]
AGREEMENT = torch.tensor([1.0, 0.0, 1 / 3, 0.0])


def start(**settings):
    """A server of four coordinates, and its stage; the pace is the agreement over its mean."""
    stage = stage_with(pace=Pace(floor=1e-6, power=1, **settings))
    return server(Schedule(base=stage), torch.zeros(4), Layout(("weight",), ((4,),))), stage


def normalised(agreement):
    return (agreement / agreement.mean()).clamp(min=1e-6)


def test_first_round_has_no_pace_and_the_next_has_its_agreement():
    one, stage = start()
    assert one.extras(stage.exchanges[0]) == {}
    exchange(one, UPDATES)
    torch.testing.assert_close(one.extras(stage.exchanges[0])["pace"], normalised(AGREEMENT))
    assert one.extras(Exchange()) == {}  # a stage without pace sends none


def test_agreement_is_averaged_over_rounds_by_size_not_by_direction():
    one, stage = start(memory=0.75)
    exchange(one, UPDATES)
    exchange(one, [[-1.0, 1.0, 1.0, 0.0], [-1.0, 1.0, -1.0, 0.0]])
    # ¾ of the first round and ¼ of the second, whose agreements are 1, 0, ⅓, 0 and 1, 1, 0, 0
    torch.testing.assert_close(one.extras(stage.exchanges[0])["pace"], normalised(torch.tensor([1.0, 0.25, 0.25, 0.0])))


def test_agreement_has_the_weights_of_the_stage():
    one, stage = start()
    exchange(one, UPDATES, altered(stage, weights="samples"), examples=[3, 1])
    torch.testing.assert_close(one.extras(stage.exchanges[0])["pace"], normalised(torch.tensor([1.0, 0.5, 5 / 7, 0.0])))


def test_mean_pace_is_one_unless_the_floor_lifts_it():
    agreement = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    assert Pace(power=3, floor=1e-9).of(agreement).mean() == pytest.approx(1, abs=1e-5)
    assert Pace(power=3, floor=0.5).of(agreement).min() == 0.5


def test_power_zero_is_plain_training():
    assert torch.equal(Pace(power=0).of(AGREEMENT), torch.ones(4))


def test_no_agreement_at_all_is_the_floor_everywhere():
    assert torch.equal(Pace().of(torch.zeros(3)), torch.full((3,), 0.05))


def test_of_does_not_change_what_is_remembered():
    agreement = AGREEMENT.clone()
    for name in paces.names():
        paces.get(name)().of(agreement)
    assert torch.equal(agreement, AGREEMENT)


def test_shuffled_paces_are_the_same_paces_elsewhere_in_every_round_alike():
    agreement = torch.rand(50, generator=torch.Generator().manual_seed(0))
    shuffled, straight = ShuffledPace().of(agreement), Pace().of(agreement)
    assert torch.equal(shuffled.sort().values, straight.sort().values)
    assert not torch.equal(shuffled, straight)
    assert torch.equal(shuffled, ShuffledPace().of(agreement))


def test_memory_of_agreement_survives_a_checkpoint():
    (one, stage), (other, _) = start(), start()
    exchange(one, UPDATES)
    other.load_state(one.state())
    assert torch.equal(other.extras(stage.exchanges[0])["pace"], one.extras(stage.exchanges[0])["pace"])
