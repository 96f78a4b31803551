"""What every aggregation rule owes its callers (``algorithms`` 0.4), each as a function of a rule and its input.

A property takes ``(rule, updates, weights)`` and fails by assertion. A rule inherits all of them by being registered.
"""

import torch

from fedpace.aggregation import Mean
from fedpace.aggregation._guided import DIVISORS, Guided

RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-9}


def filled(rule, updates, weights=None, clients=None):
    """A stream that awaits its end. Each row is overwritten once it was added: a stream owns what it keeps."""
    found = rule.start(updates.shape[1], clients or len(updates), updates.dtype)
    row = torch.empty(updates.shape[1], dtype=updates.dtype)
    for i, update in enumerate(updates):
        row.copy_(update)
        found.add(row) if weights is None else found.add(row, float(weights[i]))
        row.fill_(torch.nan)
    return found


def stream(rule, updates, weights=None, clients=None):
    """A finished stream and its result."""
    found = filled(rule, updates, weights, clients)
    return found, found.finish()


def tolerance(rule, updates, weights):
    """Rounding error that a correct rule may show: relative to the longest entry, times Σ|qᵢ| of the combination."""
    used, _ = stream(rule, updates, weights)
    reach = sum(map(abs, used.diagnostics.get("coefficients", [1.0])))
    roughly = getattr(rule, "solver", None) == "slsqp"  # differentiates numerically and stops at an absolute 1e-6
    return (1e-2 if roughly else RELATIVE[updates.dtype]) * max(1.0, reach) * max(1e-30, float(updates.abs().max()))


def assert_close(actual, expected, within):
    assert actual.shape == expected.shape
    assert actual.isfinite().all(), f"not finite: {actual}"
    error = (actual.double() - expected.double()).abs().max()
    assert error <= within, f"off by {error:.3g}, allowed {within:.3g}: {actual} instead of {expected}"


def alone(rule):
    """What one client's update is multiplied with where nobody objects: ConFREE and CAGrad step beyond it."""
    return (1 + rule.c) / DIVISORS[rule.rescale](rule.c) if isinstance(rule, Guided) else 1.0


def pick(weights, order):
    return None if weights is None else weights[order]


# The universal list -------------------------------------------------------------------------------------------------


def client_permutation(rule, updates, weights=None):
    """T1: clients have no order."""
    expected, within = rule(updates, weights), tolerance(rule, updates, weights)
    for order in (torch.arange(len(updates)).flip(0), torch.arange(len(updates)).roll(1)):
        assert_close(rule(updates[order], pick(weights, order)), expected, within)


def coordinate_permutation(rule, updates, weights=None):
    """T2: neither have coordinates; the result is permuted like the input."""
    order = torch.randperm(updates.shape[1], generator=torch.Generator().manual_seed(0))
    expected = rule(updates, weights)[order]
    assert_close(rule(updates[:, order], weights), expected, tolerance(rule, updates, weights))


def homogeneity(rule, updates, weights=None):
    """T3: agg(sU) = s·agg(U). Signs, cosines and Gram matrices allow s < 0 as well."""
    expected, within = rule(updates, weights), tolerance(rule, updates, weights)
    for s in (0.25, 3.0, -1.0, -7.0):
        assert_close(rule(s * updates, weights), s * expected, abs(s) * within)


def single_client(rule, updates, weights=None):
    """T4: one client alone decides."""
    assert isinstance(rule, Guided) or torch.equal(rule(updates[:1]), updates[0])
    one = pick(weights, slice(1))
    assert_close(rule(updates[:1], one), alone(rule) * updates[0], tolerance(rule, updates[:1], one))


def equal_clients(rule, updates, weights=None):
    """T5: where all clients agree, there is nothing to decide."""
    same = updates[:1].repeat(len(updates), 1)
    assert_close(rule(same, weights), alone(rule) * Mean()(same, weights), tolerance(rule, same, weights))
    assert_close(rule(same, weights), alone(rule) * updates[0], tolerance(rule, same, weights))


def zero_updates(rule, updates, weights=None):
    """T6: no update, no step."""
    assert torch.equal(rule(torch.zeros_like(updates), weights), torch.zeros_like(updates[0]))


def duplicates(rule, updates, weights=None):
    """T7: every client counted twice is every client counted once."""
    twice = None if weights is None else torch.cat([weights, weights])
    actual = rule(torch.cat([updates, updates]), twice)
    assert_close(actual, rule(updates, weights), tolerance(rule, updates, weights))


def per_tensor(rule, updates, weights=None):
    """T8: an elementwise rule does not see where one tensor ends and the next begins."""
    parts = torch.tensor_split(updates, 3, dim=1)
    actual = torch.cat([rule(part, weights) for part in parts])
    assert_close(actual, rule(updates, weights), tolerance(rule, updates, weights))


def precision(rule, updates, weights=None):
    """T9: float32 is close to float64."""
    single = updates.float()
    assert_close(rule(single, weights), rule(single.double(), weights), tolerance(rule, single, weights))


# What a stream owes -------------------------------------------------------------------------------------------------


def form(rule, updates, weights=None):
    """The result is a finite vector of the input's type, and the input is as it was."""
    before = updates.clone()
    result = rule(updates, weights)
    assert result.shape == updates.shape[1:]
    assert result.dtype == updates.dtype
    assert result.isfinite().all()
    assert torch.equal(updates, before)
    result.fill_(torch.nan)
    assert torch.equal(updates, before), "the result is a view of the input"


def stream_equals_matrix(rule, updates, weights=None):
    """Both forms agree bitwise, although the stream's rows are overwritten after each ``add``."""
    assert torch.equal(stream(rule, updates, weights)[1], rule(updates, weights))


def split(rule, updates, weights=None):
    """An aggregate and its mask are together what the stream would have finished in, with the same diagnostics."""
    (whole, expected), parts = stream(rule, updates, weights), filled(rule, updates, weights)
    unmasked, mask = parts.split()
    assert torch.equal(unmasked if mask is None else unmasked * mask, expected)
    assert mask is None or (mask.shape == expected.shape and (mask >= 0).all())
    assert parts.diagnostics == whole.diagnostics


def missing_clients(rule, updates, weights=None):
    """Clients that were expected and dropped out leave no trace."""
    late = stream(rule, updates, weights, clients=len(updates) + 5)[1]
    assert_close(late, rule(updates, weights), tolerance(rule, updates, weights))


def repeatable(rule, updates, weights=None):
    """T10: a rule is a function; an earlier call does not change a later one."""
    first = rule(updates, weights)
    rule(updates.flip(1) * 2 + 1, weights)
    assert torch.equal(rule(updates, weights), first)


def no_weights_are_ones(rule, updates, weights=None):
    assert torch.equal(rule(updates), rule(updates, torch.ones(len(updates))))


def zero_weights_are_uniform(rule, updates, weights=None):
    assert_close(rule(updates, torch.zeros(len(updates))), rule(updates), tolerance(rule, updates, None))


def weight_scale(rule, updates, weights=None):
    """Only the ratio of weights matters."""
    weights = torch.arange(1, len(updates) + 1).double() if weights is None else weights
    expected, within = rule(updates, weights), tolerance(rule, updates, weights)
    for s in (1e-3, 7.0, 1e4):
        assert_close(rule(updates, s * weights), expected, within)


UNIVERSAL = [
    client_permutation,
    coordinate_permutation,
    homogeneity,
    single_client,
    equal_clients,
    zero_updates,
    duplicates,
    per_tensor,
    precision,
    form,
    stream_equals_matrix,
    split,
    missing_clients,
    repeatable,
    no_weights_are_ones,
    zero_weights_are_uniform,
    weight_scale,
]
