"""Random points that a seed describes."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedpace.core import Layout, Perturbation

LAYOUT = Layout(("features.weight", "features.bias", "head.weight"), ((50, 40), (50,), (10, 50)))
VECTOR = torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(0))
SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS)
def test_size_relative_to_the_vector(seed):
    rho = 1e-3
    offset = Perturbation(rho=rho).offset(VECTOR, LAYOUT, seed)
    assert (offset.norm() / VECTOR.norm()).item() == pytest.approx(rho * sqrt(LAYOUT.size / 3), rel=0.05)
    assert offset.abs().max() <= rho * VECTOR.norm() * 1.0001
    assert abs(offset.mean()) < 5 * rho * VECTOR.norm() / sqrt(3 * LAYOUT.size)  # around zero


def test_the_papers_step_is_two_thousandths_of_the_network():
    layout = Layout(("all",), ((94_986,),))
    vector = torch.randn(94_986, generator=torch.Generator().manual_seed(1)) * 0.05
    relative = Perturbation().offset(vector, layout, 1).norm() / vector.norm()
    assert relative.item() == pytest.approx(1.8e-3, rel=0.02)


def test_without_scaling_the_vector_does_not_matter():
    settings = Perturbation(rho=0.1, scaling="none")
    offset = settings.offset(VECTOR, LAYOUT, 3)
    assert torch.equal(offset, settings.offset(100 * VECTOR, LAYOUT, 3))
    assert 0.099 < offset.abs().max() <= 0.1


@given(SEEDS)
def test_per_tensor_moves_every_layer_by_the_same_relative_amount(seed):
    vector = VECTOR.clone()
    vector[LAYOUT.slices["head.weight"]] *= 1000
    offset = Perturbation(rho=1e-3, scaling="per_tensor").offset(vector, LAYOUT, seed)
    raw = Perturbation(rho=1e-3, scaling="none").offset(vector, LAYOUT, seed)
    for part in LAYOUT.slices.values():
        torch.testing.assert_close(offset[part], raw[part] * vector[part].norm())


def test_only_the_named_parameters_move():
    whole = Perturbation(rho=0.01).offset(VECTOR, LAYOUT, 5)
    part = Perturbation(rho=0.01, only="features.*").offset(VECTOR, LAYOUT, 5)
    head = LAYOUT.slices["head.weight"]
    assert not part[head].any()
    assert torch.equal(part[: head.start], whole[: head.start])  # the other parameters draw the same numbers
    assert whole[head].any()


@given(st.lists(SEEDS, min_size=1, max_size=4))
def test_the_same_seeds_lead_to_the_same_point(path):
    settings = Perturbation(rho=0.01)
    torch.manual_seed(len(path))  # the global generator plays no part
    there = settings.follow(VECTOR, LAYOUT, tuple(path))
    torch.rand(3)
    assert torch.equal(there, settings.follow(VECTOR.clone(), LAYOUT, tuple(path)))


def test_different_seeds_lead_to_different_points():
    points = torch.stack([Perturbation().offset(VECTOR, LAYOUT, seed) for seed in range(20)])
    cosines = torch.corrcoef(points) - torch.eye(20)
    assert cosines.abs().max() < 0.1


def test_the_empty_path_is_the_vector_itself():
    vector = VECTOR.clone()
    assert torch.equal(Perturbation(rho=1.0).follow(vector, LAYOUT, ()), VECTOR)


def test_a_path_leaves_the_vector_alone_and_goes_step_by_step():
    vector = VECTOR.clone()
    settings = Perturbation(rho=0.1)
    end = settings.follow(vector, LAYOUT, (1, 2))
    assert torch.equal(vector, VECTOR)
    middle = vector + settings.offset(vector, LAYOUT, 1)
    assert torch.equal(end, middle + settings.offset(middle, LAYOUT, 2))  # the second step is scaled by the new norm


def test_a_vector_of_zeros_does_not_divide_by_zero():
    layout = Layout.of(nn.Linear(3, 2))
    for scaling in ("norm", "per_tensor"):
        offset = Perturbation(scaling=scaling).offset(torch.zeros(8), layout, 0)
        assert offset.isfinite().all()
        assert offset.abs().max() < 1e-15
