"""Differential privacy of clients: noise on what a round adds up, so that no model tells whether a client was there."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from math import sqrt
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedpace.aggregation import Mean, Sums, sign_type
from fedpace.core import ConfigError, Settings, devices, torch_stream
from fedpace.server.guard import Guard
from fedpace.server.schedule import Exchange, Schedule
from fedpace.server.sums import beyond_sums

COUNTED = 20  # of the clients of a round, one in so many is the noise of the count by default (Andrew et al., 2021)


class Privacy(Settings):
    """Models are differentially private in whole clients (McMahan et al., 2018; the guide says against whom).

    The sum Σ wᵢuᵢ of updates that the guard clipped to ‖uᵢ‖ ≤ C, with wᵢ ≤ 1, gets Gaussian noise of deviation σ · C in
    each coordinate, and is divided by the expected number of clients. ``noise`` is z, or follows from the ``epsilon``
    of the whole run; σ is z where nothing else is added up. Sums of signs, where a rule asks for them, take the part
    ``signs`` of 1/z², and the number of clipped updates, from which an adaptive bound learns, takes a small part: its
    noise is ``count_noise`` clients, by default a twentieth of a round's, or as many as ``noise`` if that is more.

    ``sampling``: a round's clients are drawn one by one, each with the same chance (``poisson``), and a client more or
    less cannot be told; or they are a ``fixed`` number, and one client in place of another cannot be told.
    ``randomness``: ``seeded`` numbers are known to whoever knows the run's seed, which is good for simulations;
    ``secret`` ones come from the operating system, and no run can be repeated.
    """

    noise: float | None = Field(None, gt=0, allow_inf_nan=False)
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False)
    delta: float | None = Field(None, gt=0, lt=1)
    sampling: Literal["poisson", "fixed"] = "poisson"
    signs: float = Field(0.5, gt=0, lt=1)
    count_noise: float | None = Field(None, gt=0, allow_inf_nan=False)
    randomness: Literal["seeded", "secret"] = "seeded"

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.delta is None:
            raise ValueError("an epsilon means nothing without a delta: expected delta, such as 1e-5, found none")
        if (self.noise is None) == (self.epsilon is None):
            found = "neither" if self.noise is None else "both"
            raise ValueError(f"expected either noise or the epsilon of the whole run, found {found}")
        return self

    def seed(self, given: int) -> int:
        """Where this run's randomness comes from: the ``given`` seed, or the operating system."""
        return given if self.randomness == "seeded" else secrets.randbits(62)

    def multipliers(self, clients: float, *, adaptive: bool, signed: bool) -> Multipliers:
        """How the noise is dealt to what a round of so many ``clients`` adds up."""
        if self.noise is None:
            raise RuntimeError("noise follows from epsilon when a run begins")
        left, count = self.noise**-2, None
        if adaptive:
            count = self.count_noise or max(clients / COUNTED, self.noise)
            left -= (2 * count) ** -2  # a client changes the count, less one half of the clients, by one half
            if left <= 0:
                raise ConfigError(
                    f"privacy: with noise of {count:g} clients, the number of clipped updates alone tells more than "
                    f"noise = {self.noise:g} allows; expected count_noise above {self.noise / 2:g}, or clip = 'fixed'"
                )
        share = self.signs if signed else 0.0
        return Multipliers(
            (left * (1 - share)) ** -0.5, (left * share) ** -0.5 if signed else None, count if adaptive else None
        )


@dataclass(frozen=True)
class Multipliers:
    """Noise by what it is for: updates in units of C, sums of signs in units of √d, the count in clients."""

    updates: float
    signs: float | None
    count: float | None


@dataclass(frozen=True)
class Private:
    """A round that is private: of about so many ``clients``, with randomness from this ``seed``."""

    settings: Privacy
    clients: float
    seed: int

    @property
    def voters(self) -> int:
        """As many clients as sums of signs are taken to be of."""
        return max(round(self.clients), 1)

    def generator(self, *names: str | int) -> torch.Generator:
        """Noise by name."""
        return torch_stream(self.seed, "privacy", *names)

    def needs_signs(self, exchange: Exchange) -> bool:
        """Whether anything that moves the model is made of sums of signs."""
        return exchange.counts or exchange.prunes or not isinstance(exchange.rule, Mean)

    def noisy(
        self, total: Tensor, signs: Tensor | None, bound: float, noise: Multipliers, generator: torch.Generator
    ) -> Sums:
        """Sums of updates no longer than ``bound``, and of their signs, as an onlooker may know them.

        Signs are whole numbers again, none larger than there are clients; what is made of noisy sums stays private.
        """
        size, voters = len(total), self.voters
        total = total + _normal(total, generator).mul_(noise.updates * bound)
        votes = torch.zeros_like(total)
        if signs is not None and noise.signs is not None:
            votes = signs + _normal(total, generator).mul_(noise.signs * sqrt(size))
        return Sums(total, votes.round_().clamp_(-voters, voters).to(sign_type(voters)), voters, self.clients)

    def noisy_share(self, below: int, clients: int, deviation: float, generator: torch.Generator) -> float:
        """The share of updates ``below`` the bound, as an onlooker may know it (Andrew et al., 2021, Algorithm 1)."""
        noise = float(torch.randn((), generator=generator)) * deviation
        return (below - clients / 2 + noise) / self.clients + 1 / 2


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Drawn on the host, so that every device sees the same."""
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=devices.HOST).to(like.device)


def weight_within_one(examples: int, exchange: Exchange, guard: Guard) -> float:
    """A client's weight in units of the largest one that the guard allows."""
    return min(examples / guard.max_examples, 1.0) if exchange.weights == "samples" and guard.max_examples else 1.0


def check_bounds(guard: Guard) -> None:
    """Refuse a guard that does not bound how much a client can change a sum."""
    if guard.clip is None:
        raise ConfigError("privacy: noise protects only what is bounded; expected guard.clip = 'fixed' or 'adaptive'")
    name = guard.clip.registered_name()
    if name not in ("fixed", "adaptive"):
        raise ConfigError(
            f"privacy: the bound of guard.clip = '{name}' follows from the updates themselves; expected 'fixed' or "
            "'adaptive'"
        )
    if guard.max_share is not None:
        raise ConfigError("privacy: guard.max_share lets a client change how much others count; expected max_examples")


def check_private(schedule: Schedule, guard: Guard) -> None:
    """Refuse a schedule in which a client can change more than noise on sums hides."""
    check_bounds(guard)
    for stage in schedule.all:
        where = f"privacy, stage '{stage.name}'"
        if stage.search is not None:
            raise ConfigError(f"{where}: a search looks at each client's own gradient; expected no search")
        for exchange in stage.exchanges:
            reason = beyond_sums(exchange)
            if reason is not None:
                raise ConfigError(f"{where}: {reason}")
            if exchange.weights == "samples" and guard.max_examples is None:
                raise ConfigError(
                    f"{where}: weights by samples have no bound; expected guard.max_examples, or weights = 'uniform'"
                )
