"""ConFREE and its two special cases, against the poster's formulas on vectors, identities, duality and other codes."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedpace.aggregation import (
    ConflictAverse,
    ConflictFree,
    ConflictFreeAuthors,
    ConflictFreeSound,
    HarmonisedProjection,
    Mean,
    Projected,
    rules,
)
from fedpace.aggregation._gram import NOISE
from fedpace.aggregation._projection import simultaneous
from fedpace.aggregation._simplex import pgd
from fedpace.core import ConfigError, derive, parse
from tests.aggregation.inputs import make, matrices, weighted
from tests.aggregation.properties import RELATIVE, assert_close, filled, stream, tolerance

EXACT = [torch.float64]
RADII = st.sampled_from([0.1, 0.5, 0.9])
guided = pytest.mark.parametrize("rule", [ConflictFree, ConflictAverse])


def guidance(rule, updates, weights=None):
    return rule.model_copy(update={"c": 0.0})(updates, weights)


def solved(rule, updates, weights=None):
    """Result and diagnostics, where neither the guidance nor the worst-off mix is zero."""
    found, result = stream(rule, updates, weights)
    assume(found.diagnostics["duality_gap"] is not None)
    return result, found.diagnostics


# The poster's formulas, on vectors ----------------------------------------------------------------------------------


def projected_mean(updates, shares):
    left = []
    for u in updates:
        opposed = [v for v in updates if u @ v < 0]
        left.append(u - sum(((u @ v) / (v @ v) * v for v in opposed), np.zeros_like(u)))
    return shares @ np.stack(left)


def direct(updates, g, c):
    """d* of the poster: SciPy on F(w) = g·u_w + c‖g‖‖u_w‖, in units in which everything is about 1."""
    updates = updates[np.linalg.norm(updates, axis=1) > 0]
    units, sizes = updates / np.linalg.norm(updates, axis=1).mean(), np.linalg.norm(g)

    def value(w):
        mixed = w @ units
        length = np.sqrt(mixed @ mixed + 1e-18)
        return units @ g @ w / sizes + c * length, units @ g / sizes + c * units @ mixed / length

    whole = {"type": "eq", "fun": lambda w: w.sum() - 1}
    start, bounds = np.full(len(units), 1 / len(units)), [(0, 1)] * len(units)
    w = minimize(value, start, jac=True, bounds=bounds, constraints=whole, options={"ftol": 1e-15, "maxiter": 1000}).x
    return g + c * sizes * (w @ units) / np.linalg.norm(w @ units)


@given(weighted(families=("normal", "sparse", "lattice"), dtypes=EXACT, max_clients=8), RADII)
def test_the_gram_form_is_the_direct_form(given_input, c):
    updates, weights = given_input
    rule = ConflictFree(c=c, client_weights="samples")
    result, report = solved(rule, updates, weights)
    shares = torch.ones(len(updates)) if weights is None or weights.sum() == 0 else weights
    g = projected_mean(updates.numpy(), (shares.double() / shares.sum()).numpy())
    assert_close(guidance(rule, updates, weights), torch.from_numpy(g), tolerance(rule, updates, weights))
    near = 1e-3 * np.linalg.norm(g)  # SciPy's accuracy, where clients do not nearly cancel out
    assume(sum(map(abs, report["coefficients"])) < 20)
    assert_close(result, torch.from_numpy(direct(updates.numpy(), g, c)), near)


@pytest.mark.parametrize("clients", [2, 10, 50])
@pytest.mark.parametrize("size", [3, 20, 2000])
def test_the_solver_is_at_least_as_good_as_scipy(clients, size):
    updates = make("normal", clients, size, dtype=torch.float64).numpy()
    matrix = updates @ updates.T
    a = simultaneous(matrix, np.full(clients, 1 / clients))
    w, kappa = pgd(matrix, a, 0.5)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1)
    gains = matrix @ (a + kappa * w)
    lengths = np.linalg.norm(updates, axis=1)
    assert w @ gains - gains.min() <= 1e-8 * np.linalg.norm(a @ updates) * lengths.mean()
    theirs = updates @ direct(updates, a @ updates, 0.5)
    assert gains.min() >= theirs.min() - 1e-9 * abs(theirs).max()


@pytest.mark.parametrize(
    ("family", "clients", "size", "seed"),
    [("normal", 12, 4, 101), ("lattice", 12, 4, 32), ("sparse", 11, 3, 199), ("duplicated", 11, 3, 73)],
)
def test_many_clients_in_few_dimensions_are_solved_too(family, clients, size, seed):
    """They nearly cancel out, and gradients alone do not get there."""
    found, _ = stream(ConflictFree(c=0.9), make(family, clients, size, seed, torch.float64))
    assert found.diagnostics["duality_gap"] < 1e-6


def test_a_gram_matrix_that_rounding_made_singular_is_solved_too():
    matrix = np.array([[1, 1 + 1e-12], [1 + 1e-12, 1]])
    w, kappa = pgd(matrix, np.array([0.5, 0.5]), 0.5)
    assert w.sum() == pytest.approx(1)
    assert kappa == pytest.approx(0.5)


# What the result promises -------------------------------------------------------------------------------------------


@guided
@given(updates=matrices(dtypes=EXACT), c=RADII)
def test_duality(rule, updates, c):
    """The worst-off client gains exactly what the dual problem says; that needs no other solver to compare with."""
    rule = rule(c=c)
    result, report = solved(rule, updates)
    g, mix = guidance(rule, updates), torch.tensor(report["worst_mix"], dtype=torch.float64)
    moving = updates.norm(dim=1) > 0
    gains, unit = updates @ result, float(g.norm() * updates.norm(dim=1).max())
    mixed = mix @ updates
    assert float(gains[moving].min()) == pytest.approx(float(g @ mixed + c * g.norm() * mixed.norm()), abs=1e-7 * unit)
    assert (gains[mix > 1e-3] <= gains[moving].min() + 1e-4 * unit).all()
    assert report["duality_gap"] <= 1e-7
    assert float((result - g).norm()) == pytest.approx(c * float(g.norm()), rel=1e-6)
    assert result @ g >= (1 - c) * g @ g - 1e-7 * g @ g
    assert gains[moving].min() >= (updates @ g)[moving].min() - 1e-7 * unit


@guided
@pytest.mark.parametrize("scale", [1e-30, 1e-16, 1e-9, 1e-5, 1e9, 1e18])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clients_of_very_different_lengths(rule, scale, several, dtype):
    """The step is as far from the guidance as it should be, and nobody's loss is overlooked."""
    for seed in range(20):
        updates = make("normal", 2 + seed % 7, 2 + seed % 9, seed, torch.float64)
        updates[1] *= scale
        if several:
            updates[2:4] *= scale**0.5
        found, result = stream(rule(), updates.to(dtype))
        g = guidance(rule(), updates.to(dtype)).double()
        assert float((result.double() - g).norm()) == pytest.approx(0.5 * float(g.norm()), rel=1e-4)
        assert found.diagnostics["duality_gap"] <= NOISE
        assert sum(found.diagnostics["worst_mix"]) == pytest.approx(1)


@guided
@given(updates=matrices(families=("normal", "lattice", "duplicated"), dtypes=EXACT), seed=st.integers(0, 1000))
def test_a_rotation_of_the_updates_rotates_the_result(rule, updates, seed):
    size = updates.shape[1]
    rotation = torch.linalg.qr(make("normal", size, size, seed, torch.float64))[0]
    expected, _ = solved(rule(), updates)
    assert_close(rule()(updates @ rotation), expected @ rotation, 10 * tolerance(rule(), updates, None))


@given(matrices(min_clients=2, max_clients=2, dtypes=EXACT))
def test_the_guidance_of_two_clients_opposes_neither(updates):
    g = ConflictFree(c=0)(updates)
    assert (updates @ g >= -1e-9 * updates.norm(dim=1) * updates.norm(dim=1).max()).all()


@pytest.mark.parametrize(("c", "opposed", "favoured"), [(0, 1, []), (0.5, 1, [2]), (0.9, 0, [0, 2])])
def test_three_clients_need_a_large_ball_to_end_without_conflict(c, opposed, favoured):
    report = stream(ConflictFree(c=c), torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.1]]))[0].diagnostics
    assert report["conflicts_before"] == 2
    assert report["conflicts_after"] == opposed
    assert report["favoured"] == favoured


@given(matrices(dtypes=EXACT))
def test_conflicts_are_counted(updates):
    found, result = stream(ConflictFree(), updates)
    cosines = torch.nn.functional.normalize(updates, dim=1) @ torch.nn.functional.normalize(updates, dim=1).T
    assert found.diagnostics["conflicts_before"] == int((cosines < -1e-6).sum()) // 2
    assert found.diagnostics["conflicts_after"] <= int((updates @ result < 0).sum())
    assert found.diagnostics["mean_length"] == pytest.approx(float(updates.norm(dim=1).mean()))


@given(matrices(dtypes=EXACT), RADII)
def test_rescaling_divides(updates, c):
    plain = ConflictFree(c=c)(updates)
    for name, divisor in {"one_plus_c_squared": 1 + c**2, "one_plus_c": 1 + c}.items():
        torch.testing.assert_close(ConflictFree(c=c, rescale=name)(updates), plain / divisor)
    assert torch.equal(ConflictFreeSound(c=c)(updates), ConflictFree(c=c, rescale="one_plus_c")(updates))


# Edge cases ---------------------------------------------------------------------------------------------------------

U, V = torch.tensor([2.0, 0.0, 0.0]), torch.tensor([3.0, 4.0, 0.0])
NOTHING = torch.zeros(3)


@guided
@pytest.mark.parametrize("degenerate", ["guidance", "zero"])
@pytest.mark.parametrize(
    ("updates", "factor", "direction"),
    [
        ([U], 1.5, U),
        ([U, U, U], 1.5, U),
        ([U, 2 * U], 1.5, 1.5 * U),
        ([NOTHING], 0.0, U),
        ([NOTHING, NOTHING], 0.0, U),
        ([U, NOTHING], 1.5, U / 2),
        ([U, -U], 0.0, U),
        ([U, -U, V, -V], 0.0, U),
    ],
)
def test_degenerate_sets(rule, degenerate, updates, factor, direction):
    found = rule(degenerate=degenerate)(torch.stack(updates))
    torch.testing.assert_close(found, factor * direction)


def test_opposite_clients_leave_no_mix_to_favour():
    updates = torch.stack([U, -U, torch.tensor([0.0, 5.0, 0.0])])  # worst_mix is ½, ½, 0
    found, result = stream(ConflictFree(), updates)
    torch.testing.assert_close(result, ConflictFree(c=0)(updates))
    assert found.diagnostics["favoured"] == []
    assert found.diagnostics["duality_gap"] is None
    assert found.diagnostics["worst_mix"] == pytest.approx([0.5, 0.5, 0.0], abs=1e-3)
    assert torch.equal(ConflictFree(degenerate="zero")(updates), NOTHING)
    assert torch.equal(ConflictFree(c=0, degenerate="zero")(updates), ConflictFree(c=0)(updates))


def test_a_client_that_sent_zero_can_count_as_the_worst_off():
    updates = torch.stack([U, V, NOTHING])
    assert torch.equal(ConflictFree(zero_clients="included")(updates), ConflictFree(c=0)(updates))
    assert_close(ConflictFree()(updates), ConflictFree()(updates[:2]) * 2 / 3, 1e-6)


@pytest.mark.parametrize("solver", ["pgd", "slsqp"])
def test_who_sent_zero_is_the_worst_off_unless_somebody_must_lose(solver):
    """Then the guidance is the step; where others lose by every step, who sent zero is not in the mix."""
    families = ["normal", "sparse", "lattice", "duplicated"] + ["dominant", "opposite"] * (solver == "pgd")
    at_rest = 0
    for family, seed in product(families, range(100)):
        clients, c = 2 + seed % 8, (0.1, 0.5, 0.9)[seed % 3]
        updates = 10 * make(family, clients, size=1 + seed % 19, seed=seed, dtype=torch.float64)  # long, for SLSQP
        updates[seed % clients] = 0
        rule = ConflictFree(c=c, solver=solver, zero_clients="included")
        result, g, others = rule(updates), guidance(rule, updates), ConflictFree(c=c)(updates)
        unit = g.norm() * updates.norm(dim=1).max()
        if (updates @ others).min() >= -1e-7 * unit:
            assert torch.equal(result, g)
            assert not rule.model_copy(update={"degenerate": "zero"})(updates).any()
            at_rest += 1
        elif solver == "pgd":
            assert_close(result, others, 1e-9 * float(g.norm()))
    assert at_rest > 300


def test_samples_weigh_in_the_guidance_alone():
    updates, weights = torch.eye(2), torch.tensor([3.0, 1.0])
    assert ConflictFree(c=0)(updates, weights).tolist() == [0.5, 0.5]
    assert ConflictFree(c=0, client_weights="samples")(updates, weights).tolist() == [0.75, 0.25]
    assert stream(ConflictFree(client_weights="samples"), updates, weights)[0].diagnostics["worst_mix"][1] > 0.5


# Identities (``algorithms`` 6) --------------------------------------------------------------------------------------


@given(matrices())
def test_without_conflicts_the_guidance_is_the_mean(updates):
    updates = updates.abs()
    for rule in (ConflictFree(c=0), ConflictFree(c=0, projection="sequential"), Projected()):
        assert_close(rule(updates), Mean()(updates), tolerance(Mean(), updates, None))


@given(matrices(), st.integers(0, 5))
def test_projected_is_the_guidance_of_sequential_projections(updates, seed):
    small, large = Projected(seed=seed), ConflictFree(c=0, projection="sequential", seed=seed)
    (few, result), (many, same) = stream(small, updates), stream(large, updates)
    assert torch.equal(result, same)
    assert few.diagnostics.items() <= many.diagnostics.items()


@given(matrices(dtypes=EXACT), RADII)
def test_conflict_averse_has_the_mean_as_guidance(updates, c):
    assert_close(ConflictAverse(c=0)(updates), Mean()(updates), tolerance(Mean(), updates, None))
    disjoint = updates.abs()  # without conflicts both have
    assert_close(
        ConflictAverse(c=c)(disjoint), ConflictFree(c=c)(disjoint), tolerance(ConflictFree(c=c), disjoint, None)
    )


@given(matrices(min_clients=2, max_clients=2))
def test_two_clients_are_harmonised_by_projection(updates):
    within = tolerance(ConflictFree(c=0), updates, None)
    for rule in (ConflictFree(c=0), Projected()):
        assert_close(rule(updates), HarmonisedProjection()(updates), within)


@given(matrices(dtypes=EXACT), st.integers(0, 3))
def test_projected_is_torchjds_pcgrad(updates, seed):
    oracle = pytest.importorskip("torchjd.aggregation").PCGrad()
    assume(bool((updates.norm(dim=1) > 0).all()))
    torch.manual_seed(derive(seed, "projection"))  # it draws from the global generator
    expected = oracle(updates) / len(updates)
    assert_close(Projected(seed=seed)(updates), expected, tolerance(Projected(seed=seed), updates, None))


def cagrad(c):
    """TorchJD's, which returns zero for updates shorter than its ``norm_eps``."""
    found = pytest.importorskip("torchjd.aggregation")
    try:
        return found.CAGrad(c=c, norm_eps=1e-12)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("clients", [2, 3, 7])
@pytest.mark.parametrize("c", [0.1, 0.5, 0.9])
def test_conflict_averse_is_torchjds_cagrad(clients, c):
    updates = make("normal", clients=clients, size=12, seed=clients, dtype=torch.float64)
    expected = cagrad(c)(updates)
    assert_close(ConflictAverse(c=c)(updates), expected, 1e-4 * float(expected.abs().max()))  # its solver's tolerance


@pytest.mark.parametrize(
    ("updates", "times", "guidance"),  # coefficients of the guidance are ``times`` over ``guidance``
    [([[1.0, 0.0], [-1.0, 1.0]], (4, 3), 4), ([[2.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], (3, 4, 2), 6)],
)
def test_conflict_free_is_torchjds_cagrad_of_repeated_rows(updates, times, guidance):
    """Repeated in proportion to the guidance's coefficients, the rows' mean has its direction."""
    rows = torch.tensor(updates, dtype=torch.float64)
    repeated = rows.repeat_interleave(torch.tensor(times), dim=0)
    expected = cagrad(0.5)(repeated) * sum(times) / guidance
    assert_close(ConflictFree(c=0.5)(rows), expected, 1e-4 * float(expected.abs().max()))


# The authors' code --------------------------------------------------------------------------------------------------


def published(clients, c, orders):
    """One tensor, as the published code treats it, on vectors."""
    left = []
    for i, u in enumerate(clients):
        rest = u.copy()
        for j in orders[i]:
            if j != i:
                rest = rest - min(rest @ clients[j], 0) * clients[j]
        left.append(rest)
    g = np.mean(left, axis=0)
    count = len(clients)
    radius = c * np.linalg.norm(g) + 1e-8
    found = minimize(
        lambda w: w @ clients @ g + radius * np.sqrt((w @ clients) @ (w @ clients) + 1e-8),
        np.full(count, 1 / count),
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: 1 - sum(w)},
    ).x
    mixed = found @ clients
    return (g + radius / (np.linalg.norm(mixed) + 1e-8) * mixed) / (1 + c**2)


def test_the_authors_rule_is_what_was_published():
    generator = torch.Generator().manual_seed(derive(7, "projection"))
    orders = [torch.randperm(5, generator=generator).tolist() for _ in range(5)]
    tensors = (slice(0, 30), slice(30, 34), slice(34, 100))
    rule = ConflictFreeAuthors(seed=7, c=0.4)
    for scale in (1e-8, 1e-3, 0.1):
        updates = scale * make("normal", clients=5, size=100, seed=3, dtype=torch.float64)
        expected = [published(updates[:, part].numpy(), 0.4, orders) for part in tensors]
        found = rule(updates, tensors=tensors)
        assert_close(found, torch.from_numpy(np.concatenate(expected)), 1e-4 * float(found.abs().max()))


@given(matrices(families=("normal", "lattice")))
def test_short_updates_make_the_authors_rule_a_longer_mean(updates):
    short = 1e-4 * updates / max(float(updates.norm(dim=1).max()), 1e-9)
    mean = Mean()(short.double())
    assume(float(mean.norm()) > 1e-6)  # its TINY terms are small against that
    assert_close(ConflictFreeAuthors()(short), mean * 1.5 / 1.25, 0.02 * float(mean.abs().max()))


def test_the_authors_projections_overshoot_on_long_updates():
    updates = 10 * make("normal", clients=5, size=20, seed=1)
    guidances = [ConflictFree(c=0, projection=p)(updates).norm() for p in ("sequential", "sequential_unnormalised")]
    assert guidances[1] > 20 * guidances[0]


@pytest.mark.parametrize("rule", [Projected, ConflictFreeAuthors])
def test_the_order_of_projections_is_seeded(rule):
    updates = make("normal", clients=6, size=8, seed=2)
    assert torch.equal(rule(seed=1)(updates), rule(seed=1)(updates))
    assert not torch.allclose(rule(seed=1)(updates), rule(seed=2)(updates))


# Tensor by tensor ---------------------------------------------------------------------------------------------------

TENSORS = (slice(0, 7), slice(7, 8), slice(8, 8), slice(8, 30))


@pytest.mark.parametrize("rule", [ConflictFree(granularity="tensor"), ConflictAverse(granularity="tensor")], ids=repr)
def test_each_tensor_has_a_step_of_its_own(rule):
    updates = make("normal", clients=4, size=30)
    expected = torch.cat([rule(updates[:, part]) for part in TENSORS])
    assert_close(rule(updates, tensors=TENSORS), expected, RELATIVE[torch.float32])
    found = filled(rule, updates)
    found.tensors = TENSORS
    assert torch.equal(found.finish(), rule(updates, tensors=TENSORS))
    assert len(found.diagnostics["tensors"]) == len(TENSORS)
    assert found.diagnostics["tensors"][0]["mean_length"] < found.diagnostics["tensors"][3]["mean_length"]
    torch.testing.assert_close(found.rows.gram, (updates.double() @ updates.double().T), rtol=1e-6, atol=1e-5)


def test_the_model_as_a_whole_does_not_see_tensors():
    updates = make("normal", clients=4, size=30)
    assert torch.equal(ConflictFree()(updates, tensors=TENSORS), ConflictFree()(updates))
    assert not torch.allclose(ConflictFree(granularity="tensor")(updates, tensors=TENSORS), ConflictFree()(updates))


def test_tensors_that_leave_coordinates_out_are_refused():
    with pytest.raises(ConfigError, match="cover 30 coordinates, found 8"):
        ConflictFree(granularity="tensor")(make("normal", clients=2, size=30), tensors=TENSORS[:2])


# Config -------------------------------------------------------------------------------------------------------------


def test_one_line_of_config_is_enough():
    sound = parse(rules, {"name": "conflict_free_sound", "c": 0.3})
    assert sound == ConflictFreeSound(c=0.3)
    assert sound.rescale == "one_plus_c"
    assert parse(rules, sound.model_dump()) == sound
    authors = parse(rules, "conflict_free_authors")
    assert (authors.granularity, authors.projection) == ("tensor", "sequential_unnormalised")


@pytest.mark.parametrize("c", [-0.1, float("nan"), float("inf")])
def test_a_radius_that_makes_no_ball_is_refused(c):
    with pytest.raises(ConfigError, match=r"^rule 'conflict_free': c: "):
        parse(rules, {"name": "conflict_free", "c": c})


def test_a_ball_around_zero_is_worth_a_caution():
    assert "may turn against the guidance" in ConflictFree(c=1.0).caution
    assert ConflictFree(c=0.99).caution is None
    assert Mean().caution is None
