"""Identities between rules (``algorithms`` 6): two codes that must give one result."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import AndMask, Dampened, Harmonised, Masked, Mean
from tests.aggregation.inputs import matrices, weighted
from tests.aggregation.properties import assert_close, tolerance


@given(weighted())
def test_masking_without_a_threshold_is_averaging(given_input):
    assert torch.equal(Masked(tau=0.0)(*given_input), Mean()(*given_input))


@given(weighted())
def test_an_and_mask_without_a_threshold_is_averaging(given_input):
    assert torch.equal(AndMask(tau=0.0)(*given_input), Mean()(*given_input))


@given(
    weighted(min_clients=2, max_clients=2, families=("normal", "dominant", "opposite", "equal")),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
)
def test_two_clients_agree_or_do_not_so_masking_is_the_and_mask(given_input, one, other):
    assert torch.equal(AndMask(tau=one)(*given_input), Masked(tau=other)(*given_input))


@given(weighted())
def test_votes_by_samples_are_heads_where_clients_are_of_one_size(given_input):
    updates, _ = given_input
    sizes = torch.full((len(updates),), 7.0)
    for rule in (Masked, AndMask):
        for threshold in ("inclusive", "strict"):
            by_heads, by_samples = (
                rule(agreement_weights=votes, threshold=threshold)(updates, sizes) for votes in ("uniform", "samples")
            )
            assert torch.equal(by_heads, by_samples)


@given(weighted())
def test_masking_everything_is_dampening(given_input):
    assert torch.equal(Masked(tau=1.0)(*given_input), Dampened()(*given_input))


@pytest.mark.parametrize("negative", ["clamp", "keep"])
@given(updates=matrices(min_clients=2, max_clients=2))
def test_two_harmonised_clients_are_averaged(negative, updates):
    rule = Harmonised(negative=negative)
    assert_close(rule(updates), Mean()(updates), tolerance(Mean(), updates, None))
