"""The dual problem of ConFREE and CAGrad: which mix of clients does a step around the guidance serve worst?

Over the simplex, F(w) = ⟨g, u_w⟩ + c‖g‖‖u_w‖ is to be minimised, where g = aᵀU is the guidance and u_w = wᵀU. Either
solver returns w* and κ = c‖g‖ / ‖u_w*‖, the factor with which u_w* is added to g.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from fedpace.aggregation._gram import NOISE

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

NEGLIGIBLE = math.sqrt(NOISE)  # of the lengths that make it up: no Gram matrix can tell what is shorter from zero
TINY = 1e-8  # what the authors' code adds


def length(gram: Matrix, coefficients: Vector) -> float:
    """The length of a combination of updates."""
    return math.sqrt(max(float(coefficients @ gram @ coefficients), 0.0))


def vanishes(gram: Matrix, coefficients: Vector) -> bool:
    """Whether a combination of updates is zero, as far as their Gram matrix can tell."""
    reach = np.abs(coefficients) @ np.sqrt(gram.diagonal())
    return bool(length(gram, coefficients) <= NEGLIGIBLE * reach)


def pgd(gram: Matrix, guidance: Vector, c: float, gap: float = 1e-8) -> tuple[Vector, float]:
    """Accelerated projected gradient (FISTA) to find who takes part, and their shares in closed form.

    The variables are xᵢ = wᵢ‖uᵢ‖, because a long update would hide the short ones. Where updates nearly cancel out,
    progress is slow, and SciPy ends what was begun if the relative duality gap is still above ``gap``.

    F is zero at a client that sent zero, and t·F(w) on the way from there to w. So the minimum is either at that client
    or among the others, where F is negative: no search between them is needed.

    A client shorter than ``NOISE`` times the longest is lengthened to that for the search, or rounding errors would
    swallow it. The step hardly changes: such a client gains next to nothing either way, and keeps its direction.
    """
    if (at_rest := _at_rest(gram)) is not None:
        moving = np.flatnonzero(at_rest == 0)
        w = np.zeros(len(gram))
        w[moving], kappa = pgd(gram[np.ix_(moving, moving)], guidance[moving], c, gap)
        g = length(gram, guidance)
        value = float(w @ gram @ guidance) + c * g * length(gram, w)
        return (w, kappa) if value < -NOISE * g * float(w @ np.sqrt(gram.diagonal())) else (at_rest, 0.0)
    lengths = np.sqrt(gram.diagonal())
    longer = np.maximum(NOISE * lengths.max() / lengths, 1)
    problem = _Dual(gram * np.outer(longer, longer), guidance / longer, c)
    x, left = _fista(problem, gap)
    if left > gap:
        further = _scipy(problem.at, x, problem.prices, jac=True, options={"ftol": 1e-14})
        x = min(x, further, problem.polish(further), key=problem.gap)
    w = x * problem.prices
    growth = float((w * longer).sum() / w.sum())  # exactly 1 where nobody is far shorter
    return w * longer / growth, problem.kappa(x) * growth


def slsqp(gram: Matrix, guidance: Vector, c: float) -> tuple[Vector, float]:
    """SciPy as ConFREE's published code calls it: unscaled, numeric gradient, absolute tolerance 1e-6, ``TINY`` terms.

    F is quadratic in the length of updates, so for short ones (below about 0.03) it stops at once, at w = 1/N. Where
    it ends at a client that sent zero, what ``TINY`` and rounding errors leave of the others is dropped.
    """
    slope = gram @ guidance
    radius = c * length(gram, guidance) + TINY
    start = np.full(len(slope), 1 / len(slope))
    w = _scipy(lambda w: slope @ w + radius * np.sqrt(length(gram, w) ** 2 + TINY), start, np.ones(len(slope)))
    at_rest = _at_rest(gram)
    if at_rest is not None and w[at_rest > 0].sum() > 1 - NEGLIGIBLE:
        return at_rest, 0.0
    return w, radius / (length(gram, w) + TINY)


def _at_rest(gram: Matrix) -> Vector | None:
    """The mix of all clients that sent zero, if there are any."""
    zero = gram.diagonal() == 0
    return zero / zero.sum() if zero.any() else None


class _Dual:
    """F in the variables x ≥ 0 with ⟨prices, x⟩ = 1, in units of ‖g‖ and the mean length of updates.

    Where ‖u_w‖ is negligible F is bent into a parabola. It has a gradient everywhere then, remains convex and
    homogeneous, and every minimum elsewhere stays where it is.
    """

    def __init__(self, gram: Matrix, guidance: Vector, c: float) -> None:
        squares = gram.diagonal()
        square = squares.sum() / len(gram)
        self.lengths = np.sqrt(squares / square)
        self.prices = 1 / self.lengths
        self.cosines = gram / square * (self.prices[:, None] * self.prices)
        self.cosines.flat[:: len(gram) + 1] += 1e-12  # invertible then, almost surely; less than rounding does
        along, self._size = self._combination(self.lengths * guidance)
        self.slope = along / self._size
        self._sides = np.array([self.prices, self.slope])
        self.c = c

    def at(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient."""
        along, size = self._combination(x)
        bend = NEGLIGIBLE * float(x.sum())
        if size > bend:
            return float(self.slope @ x + self.c * size), self.slope + self.c / size * along
        bent, growth = (size**2 / bend + bend) / 2, (NEGLIGIBLE - size**2 / bend / x.sum()) / 2
        return float(self.slope @ x + self.c * bent), self.slope + self.c * (along / bend + growth)

    def gap(self, x: Vector) -> float:
        """Duality gap: F(x) = ⟨∇F(x), x⟩ is at least its minimum, and ‖uⱼ‖∇F(x)ⱼ is what client j gains by g + κu_w."""
        value, gradient = self.at(x)
        return value - float((self.lengths * gradient).min())

    def kappa(self, x: Vector) -> float:
        """κ, never infinite."""
        return self.c * self._size / max(length(self.cosines, x), NEGLIGIBLE * float(x.sum()))

    def _combination(self, x: Vector) -> tuple[Vector, float]:
        """Of u_w: its product with the direction of each update, and its length."""
        along = self.cosines @ x
        return along, math.sqrt(max(float(x @ along), 0.0))

    def project(self, point: Vector) -> Vector:
        """The nearest x ≥ 0 with ⟨prices, x⟩ = 1, by sorting."""
        order = np.argsort(-point * self.lengths)
        values, prices = point[order], self.prices[order]
        shifts = ((values * prices).cumsum() - 1) / (prices * prices).cumsum()
        last = np.flatnonzero(values > shifts * prices)[-1]
        return np.asarray(np.maximum(point - shifts[last] * self.prices, 0))

    def polish(self, x: Vector) -> Vector:
        """Where ∇F = μ · prices for the clients that take part in x: a quadratic equation for μ. Or x, if nowhere."""
        from scipy.linalg.lapack import dgesv  # here, because few rules need SciPy, and it is slow to import

        (some,) = (x > NOISE * x.max()).nonzero()
        while len(some):
            # take and LAPACK itself, because indices and NumPy's solve take three times as long
            sides = self._sides.take(some, 1)
            _, _, solved, singular = dgesv(self.cosines.take(some, 0).take(some, 1), sides.T)
            (a, b), (_, d) = (sides @ solved).tolist()
            root = math.sqrt(max(b * b - a * (d - self.c**2), 0.0))
            if singular or a <= 0 or root == 0:
                break
            exact = np.zeros(len(x))
            exact[some] = ((b + root) / a * solved[:, 0] - solved[:, 1]) / root
            if exact.min() >= 0:
                return exact
            (some,) = (exact > 0).nonzero()
        return x


def _fista(problem: _Dual, gap: float, iterations: int = 200) -> tuple[Vector, float]:
    """Beck & Teboulle (2009), with backtracking, and a restart where momentum leads uphill. Returns x and its gap."""
    x = ahead = problem.lengths / len(problem.lengths)
    value, momentum, curvature = np.inf, 1.0, 1.0
    for iteration in range(iterations):
        if iteration % 10 == 0 and (left := problem.gap(exact := problem.polish(x))) <= gap:
            return exact, left
        value_ahead, gradient = problem.at(ahead)
        curvature /= 1.5
        while True:
            new = problem.project(ahead - gradient / curvature)
            step, new_value = new - ahead, problem.at(new)[0]
            if new_value <= value_ahead + gradient @ step + curvature / 2 * (step @ step) + 1e-15 or curvature > 1e12:
                break
            curvature *= 2
        if new_value > value and ahead is not x:
            ahead, momentum = x, 1.0
            continue
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / next_momentum * (new - x)
        x, value, momentum = new, new_value, next_momentum
    left, x = min(((problem.gap(point), point) for point in (x, problem.polish(x))), key=lambda found: found[0])
    return x, left


def _scipy(objective: Callable[[Vector], Any], start: Vector, prices: Vector, **options: Any) -> Vector:
    """SLSQP over x ≥ 0 with ⟨prices, x⟩ = 1."""
    from scipy.optimize import minimize

    whole = {"type": "eq", "fun": lambda x: 1 - prices @ x}
    bounds = [(0, 1 / price) for price in prices]
    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # a step beyond the bounds is clipped
        found = np.maximum(minimize(objective, start, method="SLSQP", bounds=bounds, constraints=whole, **options).x, 0)
    return np.asarray(found / (prices @ found))
