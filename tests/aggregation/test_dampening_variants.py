"""Dampening by magnitude, and the control that only shrinks."""

import torch
from hypothesis import given

from fedpace.aggregation import Dampened, MagnitudeDampened, Mean, Shrunk
from tests.aggregation.inputs import matrices


@given(matrices())
def test_magnitude_dampening_is_the_mean_times_what_survives_of_the_movement(updates):
    mean, moved = updates.double().mean(0), updates.double().abs().mean(0)
    expected = torch.where(moved > 0, mean * mean.abs() / moved, 0.0)
    found = MagnitudeDampened()(updates).double()
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6 * float(updates.abs().max()))


@given(matrices())
def test_neither_flips_a_sign_nor_lengthens_a_coordinate(updates):
    mean = Mean()(updates)
    for rule in (MagnitudeDampened(), Shrunk()):
        found = rule(updates)
        assert ((found * mean) >= 0).all()
        assert (found.abs() <= mean.abs() * (1 + 1e-6)).all()


def test_a_client_that_hardly_moves_has_little_say():
    updates = torch.tensor([[1.0], [1.0], [-1e-4]])
    assert Dampened()(updates) < 0.34 * Mean()(updates)
    assert MagnitudeDampened()(updates) > 0.999 * Mean()(updates)


def test_the_control_has_the_direction_of_the_mean_and_the_mean_factor_of_dampening():
    updates = torch.tensor([[1.0, 2.0, 0.0], [1.0, -4.0, 0.0], [1.0, 5.0, 0.0]])
    stream = Shrunk().start(3, 3)
    for update in updates:
        stream.add(update)
    result = stream.finish()
    assert torch.allclose(result, Mean()(updates) * (1 + 1 / 3) / 2)  # the coordinate that nobody moves does not count
    assert abs(stream.diagnostics["mean_factor"] - 2 / 3) < 1e-6
