"""How much a run's models tell: its ε after each round, by the accountant of ``dp-accounting``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpace.core import ConfigError
from fedpace.engine.cohort import Cohort
from fedpace.server import Privacy, Private, Schedule

# Rényi orders: ε is the smallest that any of them allows. Below 2 sums of the accountant may not converge.
ORDERS = (*(order / 4 for order in range(8, 44)), *range(11, 65), 72, 80, 96, 128, 192, 256)
LEAST_NOISE = 0.05  # with less, ε is in the hundreds and says nothing


@dataclass(frozen=True)
class Release:
    """What a round gives away: the sum of ``exchanges`` over clients that were drawn out of all, by chance ``share``.

    Of a ``fixed`` number of clients, one in place of another changes a sum twice as much as one more or less.
    """

    share: float
    exchanges: int
    fixed: bool
    population: int = 0

    def event(self, noise: float) -> Any:
        """The same as the accountant says it."""
        accounting = _library()
        multiplier = (
            noise / self.exchanges**0.5
        )  # several sums over the same clients tell as much as one with less noise
        gaussian = accounting.GaussianDpEvent(multiplier / 2 if self.fixed else multiplier)
        if self.share >= 1:
            return gaussian
        if self.fixed:
            drawn = round(self.share * self.population)
            return accounting.SampledWithoutReplacementDpEvent(self.population, drawn, gaussian)
        return accounting.PoissonSampledDpEvent(self.share, gaussian)


@dataclass
class Ledger:
    """The ε of a run after so many rounds; what it was asked once it does not compute again."""

    privacy: Privacy
    cohort: Cohort
    population: int
    schedule: Schedule
    _known: dict[Release, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    def clients(self, number: int) -> float:
        """How many clients a round is expected to have."""
        if self.privacy.sampling == "fixed":
            return float(self.cohort.size(self.population, number))
        return self.cohort.chance(self.population, number) * self.cohort.there(self.population, number)

    def private(self, number: int, seed: int) -> Private:
        """What the server needs to know to make a round private."""
        return Private(self.privacy, self.clients(number), self.privacy.seed(seed))

    def sample(self, number: int, seed: int) -> list[int]:
        """The clients of a round."""
        fixed = self.privacy.sampling == "fixed"
        draw = self.cohort.sample if fixed else self.cohort.sample_by_chance
        return draw(self.population, seed=self.privacy.seed(seed), round_number=number)

    def epsilon(self, rounds: int) -> float:
        """ε after so many rounds."""
        spent = sum((count * self._rdp(release) for release, count in self._releases(rounds).items()), np.zeros(1))
        return epsilon_of(spent, self.privacy.delta)

    def description(self, rounds: int) -> dict[str, Any]:
        """What the run folder says: the noise, and ε after so many rounds."""
        return {"noise": self.privacy.noise, "epsilon": self.epsilon(rounds), "delta": self.privacy.delta}

    def with_noise(self, rounds: int) -> Ledger:
        """The same with the noise by which so many rounds have the ``epsilon`` of the settings."""
        target = self.privacy.epsilon
        if target is None:
            return self
        accounting, releases = _library(), self._releases(rounds)

        def event(noise: float) -> Any:
            return accounting.ComposedDpEvent(
                [accounting.SelfComposedDpEvent(release.event(noise), count) for release, count in releases.items()]
            )

        known = self._accountant, event, target, self.privacy.delta
        try:
            found = accounting.calibrate_dp_mechanism(
                *known, accounting.LowerEndpointAndGuess(LEAST_NOISE, 1.0), tol=1e-3
            )
        except accounting.mechanism_calibration.NoBracketIntervalFoundError:
            raise ConfigError(f"privacy: no noise has epsilon = {target:g} after {rounds} rounds") from None
        settings = self.privacy.model_copy(update={"noise": float(found), "epsilon": None})
        return Ledger(settings, self.cohort, self.population, self.schedule)

    def check(self) -> list[str]:
        """Refuse noise of which no ε can be told; return what the user should know."""
        noise, delta = self.privacy.noise or 0.0, self.privacy.delta or 0.0
        if noise < LEAST_NOISE:
            raise ConfigError(
                f"privacy: with so little noise no ε can be told: expected {LEAST_NOISE}, found {noise:g}"
            )
        if delta < 1 / self.population:
            return []
        return [
            f"privacy: with delta = {delta:g} all may be told of one of {self.population} clients; "
            f"expected less than 1/{self.population} = {1 / self.population:.2g}"
        ]

    def _releases(self, rounds: int) -> Counter[Release]:
        return Counter(map(self._release, range(rounds)))

    def _release(self, number: int) -> Release:
        exchanges, fixed = len(self.schedule.stage(number).exchanges), self.privacy.sampling == "fixed"
        there = self.cohort.there(self.population, number)
        return Release(self.clients(number) / there, exchanges, fixed, there if fixed else 0)

    def _rdp(self, release: Release) -> NDArray[np.float64]:
        if release not in self._known:
            accountant = self._accountant().compose(release.event(self.privacy.noise or 0.0))
            self._known[release] = np.asarray(accountant.rdp)
        return self._known[release]

    def _accountant(self) -> Any:
        relation = _library().NeighboringRelation
        chosen = relation.REPLACE_ONE if self.privacy.sampling == "fixed" else relation.ADD_OR_REMOVE_ONE
        return _library().rdp.RdpAccountant(ORDERS, chosen)


def epsilon_of(rdp: NDArray[np.float64], delta: float | None) -> float:
    """ε of Rényi divergences by order."""
    return float(_library().rdp.compute_epsilon(ORDERS, np.broadcast_to(rdp, len(ORDERS)), delta)[0])


def _library() -> Any:
    """``dp_accounting``, which takes longer to import than all of our own code."""
    try:
        import dp_accounting.rdp
    except ImportError:
        raise ConfigError("privacy: needs dp-accounting; pip install 'fedpace[dp]'") from None
    return dp_accounting
