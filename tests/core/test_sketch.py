"""Sketches: linear, the same for everybody, and with nearly the same cosines."""

import pytest
import torch

from fedpace.core import sketch


def vectors(count, size=20_000, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def cosine(one, two):
    return float(torch.cosine_similarity(one, two, dim=0))


@pytest.mark.parametrize("dimensions", [64, 1024])
@pytest.mark.parametrize("mix", [-0.9, 0.0, 0.5, 0.99])
def test_cosines_are_off_by_about_one_over_the_root_of_the_dimensions(dimensions, mix):
    errors = []
    for seed in range(20):
        one, other = vectors(2, seed=seed)
        two = mix * one + (1 - mix**2) ** 0.5 * other
        short = [sketch(vector, dimensions, seed=seed) for vector in (one, two)]
        errors.append(cosine(*short) - cosine(one, two))
    spread = torch.tensor(errors).square().mean().sqrt() * dimensions**0.5
    assert spread < 1.6  # (1 − cos²) ideally; 20 samples of it
    if mix == 0.0:
        assert spread > 0.5  # a sketch cannot be better than that


def test_is_linear():
    one, two = vectors(2).double()
    torch.testing.assert_close(sketch(3 * one - two, 50), 3 * sketch(one, 50) - sketch(two, 50))


def test_each_coordinate_goes_with_its_sign_to_one_bucket():
    size, dimensions = 500, 20
    columns = torch.stack([sketch(row, dimensions) for row in torch.eye(size)])
    assert torch.equal(columns.abs().sum(1), torch.ones(size))
    assert abs(columns.sum()) < 5 * size**0.5
    assert columns.abs().sum(0).min() > 5  # of 25 that each bucket may expect


def test_the_same_seed_gives_the_same_sketch_and_another_another():
    (one,) = vectors(1)
    first = sketch(one, 30, seed=1)
    assert not torch.equal(first, sketch(one, 30, seed=2))
    assert torch.equal(first, sketch(one, 30, seed=1))


def test_the_sketch_is_the_same_on_every_machine():
    found = sketch(torch.arange(1.0, 9.0), 3)
    assert found.tolist() == [3.0, -1.0, -2.0]


def test_leaves_its_vector_and_the_global_generator_alone():
    (one,) = vectors(1)
    before, state = one.clone(), torch.random.get_rng_state()
    sketch(one, 30, seed=99)
    assert torch.equal(one, before)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value):
    assert not sketch(torch.tensor([1.0, value, 2.0]), 4).isfinite().all()
