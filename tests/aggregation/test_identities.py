"""Identities between rules (``algorithms`` 6): two codes that must give one result."""

import pytest
import torch
from hypothesis import given

from fedpace.aggregation import Dampened, Harmonised, Masked, Mean
from tests.aggregation.inputs import matrices, weighted
from tests.aggregation.properties import assert_close, tolerance


@given(weighted())
def test_masking_without_a_threshold_is_averaging(given_input):
    assert torch.equal(Masked(tau=0.0)(*given_input), Mean()(*given_input))


@given(weighted())
def test_masking_everything_is_dampening(given_input):
    assert torch.equal(Masked(tau=1.0)(*given_input), Dampened()(*given_input))


@pytest.mark.parametrize("negative", ["clamp", "keep"])
@given(updates=matrices(min_clients=2, max_clients=2))
def test_two_harmonised_clients_are_averaged(negative, updates):
    rule = Harmonised(negative=negative)
    assert_close(rule(updates), Mean()(updates), tolerance(Mean(), updates, None))
