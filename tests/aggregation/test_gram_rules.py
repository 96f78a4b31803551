"""Rules on the Gram matrix: cosine weights and projections, against identities and exact arithmetic."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import Harmonised, HarmonisedProjection, Mean, Rows, _signs, cosines, gram
from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._kernels import RUN
from tests.aggregation.inputs import make, matrices
from tests.aggregation.properties import RELATIVE, assert_close, stream, tolerance

NO_ZERO_ROWS = ("normal", "dominant", "opposite", "duplicated", "equal")
both_policies = pytest.mark.parametrize("rule", [Harmonised(), Harmonised(negative="keep")], ids=repr)


# The kernel ----------------------------------------------------------------------------------------------------------


def error(rows):
    """How far the Gram matrix is off, relative to the lengths of the two vectors."""
    wide = rows.double()
    direct = torch.stack([torch.stack([(a * b).sum() for b in wide]) for a in wide])
    lengths = direct.diagonal().sqrt()
    return float(((gram(rows) - direct).abs() / (lengths[:, None] * lengths)).max())


@pytest.mark.parametrize("clients", [1, 2, 5, 6])
@pytest.mark.parametrize("size", [1, 40, RUN, 1000])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, NOISE), (torch.float64, 1e-13)])
def test_gram_is_the_matrix_of_inner_products(clients, size, dtype, within):
    rows = make("dominant", clients=clients, size=size, dtype=dtype)
    found = gram(rows)
    assert found.dtype == torch.float64
    assert torch.equal(found, found.T)
    assert error(rows) < within


@pytest.mark.parametrize("clients", [1, 3, 8, 20])
def test_long_sums_keep_their_digits(clients):
    equal = torch.full((clients, 200_000), 0.1) + 0.01 * torch.arange(clients)[:, None]  # rounds one way every time
    assert error(equal) < NOISE
    assert error(make("normal", clients, 200_000)) < 0.02 * NOISE


@pytest.mark.parametrize("block", [1, 7, 300, 1 << 16])
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_squares_beyond_the_range_of_float32(scale, block, monkeypatch):
    monkeypatch.setattr(_signs, "BLOCK", block)
    rows = make("normal", clients=3, size=300)
    torch.testing.assert_close(gram(scale * rows), scale**2 * gram(rows.double()), rtol=1e-6, atol=0)


def test_rows_build_their_gram_once():
    updates = make("normal", clients=4, size=50)
    found, _ = stream(Harmonised(), updates)
    assert found.rows.gram is found.rows.gram
    assert torch.equal(found.rows.gram, gram(updates))
    rows = Rows.of(updates)
    parts = rows.grams([slice(0, 20), slice(20, 50)])
    torch.testing.assert_close(rows.gram, parts[0] + parts[1])
    torch.testing.assert_close(rows.gram, gram(updates), rtol=1e-6, atol=1e-6)


def test_where_a_matrix_lies_in_memory_changes_no_bit():
    updates = make("normal", clients=3, size=301)
    shifted = torch.cat([torch.zeros(1), updates.flatten()])[1:].view(3, 301)
    for same in (shifted, updates.T.contiguous().T):
        assert torch.equal(Rows.of(same).gram, gram(updates))


def test_cosines_of_known_angles():
    rows = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    half = 0.5**0.5
    expected = [
        [1.0, 0.0, -1.0, half, 0.0],
        [0.0, 1.0, 0.0, half, 0.0],
        [-1.0, 0.0, 1.0, -half, 0.0],
        [half, half, -half, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    torch.testing.assert_close(cosines(gram(rows)), torch.tensor(expected, dtype=torch.float64))


@given(matrices())
def test_cosines_stay_in_range(updates):
    found = cosines(gram(updates))
    assert found.isfinite().all()
    assert (found.abs() <= 1).all()
    assert (found.diagonal() == 1).all()


# Harmonised ----------------------------------------------------------------------------------------------------------


@given(matrices(families=NO_ZERO_ROWS, dtypes=[torch.float64]))
def test_cosine_sums_total_the_squared_length_of_the_summed_directions(updates):
    total = float(cosines(gram(updates)).sum())
    directions = updates.double() / updates.double().norm(dim=1, keepdim=True)
    assert total == pytest.approx(float(directions.sum(0).square().sum()), abs=1e-9)
    assert total >= -1e-9


@both_policies
@given(updates=matrices(min_clients=3, max_clients=8, families=("normal", "dominant"), dtypes=[torch.float64]))
def test_harmonised_is_what_its_formula_says(rule, updates):
    wide = updates / updates.norm(dim=1, keepdim=True)
    weights = torch.stack([sum(a @ b for b in wide) for a in wide])
    weights = weights.clamp_min(0) if rule.negative == "clamp" else weights
    expected = (weights[:, None] * updates).sum(0) / weights.sum()
    assert_close(rule(updates), expected, tolerance(rule, updates, None))


def test_negative_weights_are_clamped_or_kept():
    updates = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])  # cosine sums 1, 1, −1
    clamped, kept = Harmonised(), Harmonised(negative="keep")
    assert stream(clamped, updates)[0].diagnostics["coefficients"] == pytest.approx([0.5, 0.5, 0.0])
    assert stream(kept, updates)[0].diagnostics["coefficients"] == pytest.approx([1.0, 1.0, -1.0])
    assert clamped(updates).tolist() == pytest.approx([1.0, 1.0])
    assert kept(updates).tolist() == pytest.approx([3.0, 3.0])


@both_policies
@pytest.mark.parametrize("weights", [None, torch.tensor([3.0, 1.0])], ids=["uniform", "weighted"])
def test_directions_that_cancel_count_alike(rule, weights):
    assert rule(torch.tensor([[1.0, 3.0], [-2.0, -6.0]]), weights).tolist() == pytest.approx([-0.5, -1.5])


@both_policies
def test_three_directions_that_cancel_count_alike(rule):
    angles = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64) * torch.pi / 3
    updates = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([[1.0], [2.0], [3.0]])
    assert_close(rule(updates), updates.mean(0), 1e-12)


def test_sample_weights_multiply_cosine_sums():
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert Harmonised()(updates, torch.tensor([3.0, 1.0])).tolist() == pytest.approx([0.75, 0.25])


# Projection ----------------------------------------------------------------------------------------------------------


def exact_projection(rows):
    """The rule in fractions, on the vectors themselves."""
    vectors = [[Fraction(x) for x in row] for row in rows]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    for i in range(len(vectors)):
        for j in range(i + 1, len(vectors)):
            a, b = vectors[i], vectors[j]
            inner = dot(a, b)
            if inner < 0:
                vectors[i] = [x - inner / dot(b, b) * y for x, y in zip(a, b, strict=True)]
                vectors[j] = [y - inner / dot(a, a) * x for x, y in zip(a, b, strict=True)]
    return torch.tensor([float(sum(column) / len(vectors)) for column in zip(*vectors, strict=True)])


small_integers = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.lists(st.integers(-9, 9), min_size=size, max_size=size), min_size=1, max_size=4)
)


@given(small_integers)
def test_projection_is_exact_on_small_integers(rows):
    assert_close(HarmonisedProjection()(torch.tensor(rows).double()), exact_projection(rows), 1e-5)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_projections_that_end_in_zero_conflict_with_nobody(size):
    """−7u and 3u annihilate each other; −9u then meets two zero vectors and stays as it is."""
    along = torch.linspace(1, 2, size)
    updates = torch.tensor([[-7.0], [3.0], [-9.0]]) * along
    assert_close(HarmonisedProjection()(updates), -3 * along, 1e-4)


def test_projection_by_hand():
    # inner −1: (1, 0) + ½(−1, 1) = (½, ½) and (−1, 1) + (1, 0) = (0, 1)
    updates = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])
    assert HarmonisedProjection()(updates).tolist() == pytest.approx([0.25, 0.75])
    assert HarmonisedProjection()(updates, torch.tensor([3.0, 1.0])).tolist() == pytest.approx([0.375, 0.625])


@given(matrices(families=("normal", "dominant", "sparse", "opposite", "lattice"), min_clients=2, max_clients=2))
def test_two_clients_end_without_conflict(updates):
    updates[1] *= -(updates[0] @ updates[1]).sign()
    found = HarmonisedProjection()(updates).double()
    lengths = updates.double().norm(dim=1)
    assert (updates.double() @ found >= -RELATIVE[updates.dtype] * lengths * lengths.max()).all()


@given(matrices())
def test_no_conflict_is_the_mean(updates):
    updates = updates.abs()
    assert_close(HarmonisedProjection()(updates), Mean()(updates), tolerance(Mean(), updates, None))
