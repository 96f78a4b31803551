"""How much a run's models tell: its ε after each round, by the accountant of ``dp-accounting``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpace.core import ConfigError
from fedpace.data import Shard, shards_of
from fedpace.engine.cohort import Cohort
from fedpace.methods import Method
from fedpace.server import Privacy, PrivateRound, Schedule, Secure

# Rényi orders: ε is the smallest that any of them allows.
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
        # Several sums over the same clients tell as much as one with less noise.
        multiplier = noise / self.exchanges**0.5
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

    def private(self, number: int, seed: int, secure: Secure | None = None) -> PrivateRound:
        """What the server needs to know to make a round private."""
        clients, randomness = self.clients(number), self.privacy.seed(seed)
        if secure is None:
            return PrivateRound(self.privacy, clients, randomness)
        _, least = secure.counts(round(clients))
        return PrivateRound(self.privacy, clients, randomness, secure.norm or 0.0, least)

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
            with _quiet():
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
            with _quiet():
                accountant = self._accountant().compose(release.event(self.privacy.noise or 0.0))
            self._known[release] = np.asarray(accountant.rdp)
        return self._known[release]

    def _accountant(self) -> Any:
        relation = _library().NeighboringRelation
        chosen = relation.REPLACE_ONE if self.privacy.sampling == "fixed" else relation.ADD_OR_REMOVE_ONE
        return _library().rdp.RdpAccountant(ORDERS, chosen)


@dataclass
class LocalLedger:
    """What clients that train privately told of an example, whoever sees what they send; the client that told most.

    A pass over its examples uses each of them once, in one step: that is one Gaussian mechanism, however many steps a
    pass has, and an example that is blank instead changes one clipped gradient. No chance of being drawn is counted on.
    """

    local: Method
    shards: Sequence[Shard]
    schedule: Schedule
    _passes: Counter[int] = field(default_factory=Counter, init=False)

    def add(self, cohort: Sequence[int], number: int) -> None:
        """Note that these clients trained in a round."""
        turns = len(self.schedule.stage(number).exchanges)
        for client in cohort:
            shard = self.shards[client]
            self._passes[client] += turns * ceil(self.local.steps(shard) / self.local.steps(shard, epochs=1))

    def check(self) -> list[str]:
        """What the user should know."""
        if self.local.private is None:
            return []
        largest = int(shards_of(self.shards).sizes.max())
        if self.local.private.delta < 1 / largest:
            return []
        return [
            f"local.private: with delta = {self.local.private.delta:g} all may be told of one of a client's {largest} "
            f"examples; expected less than 1/{largest} = {1 / largest:.2g}"
        ]

    @property
    def epsilon(self) -> float | None:
        """ε up to now, of each example by itself; nothing where clients do not train privately."""
        private = self.local.private
        if private is None:
            return None
        most = max(self._passes.values(), default=0)
        return epsilon_of(most * np.array(ORDERS) / (2 * private.noise**2), private.delta)


def epsilon_of(rdp: NDArray[np.float64], delta: float | None) -> float:
    """ε of Rényi divergences by order."""
    return float(_library().rdp.compute_epsilon(ORDERS, np.broadcast_to(rdp, len(ORDERS)), delta)[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """The accountant warns of each order that it leaves out; ε is then the smallest of the others, and as true."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _library() -> Any:
    """``dp_accounting``, which takes longer to import than all of our own code."""
    try:
        import dp_accounting.rdp
    except ImportError:
        raise ConfigError("privacy: needs dp-accounting; pip install 'fedpace[dp]'") from None
    return dp_accounting
