"""Differential privacy of clients: noise on what a round adds up, so that no model tells whether a client was there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedpace.aggregation import Sums, sign_type
from fedpace.core import ConfigError, Randomness, Settings, devices, seed_of, torch_stream
from fedpace.server.clipping import Adaptive, Fixed
from fedpace.server.guard import Guard
from fedpace.server.schedule import Exchange, Schedule
from fedpace.server.sums import Secure, beyond_sums, quantities

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
    randomness: Randomness = "seeded"

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.delta is None:
            raise ValueError("an epsilon means nothing without a delta: expected a delta, such as 1e-5")
        if (self.noise is None) == (self.epsilon is None):
            raise ValueError("expected either noise or the epsilon of the whole run, and not both")
        return self

    def seed(self, given: int) -> int:
        """Where this run's randomness comes from: the ``given`` seed, or the operating system."""
        return seed_of(self.randomness, given)

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
class PrivateRound:
    """A round that is private: of about so many ``clients``, with randomness from this ``seed``.

    Within secure sums clients keep to a ``norm`` and add the noise themselves; at least ``adding`` of them are summed.
    """

    settings: Privacy
    clients: float
    seed: int
    norm: float = 0.0
    adding: int = 1

    @property
    def noise_of_each(self) -> float:
        """The deviation of what a client adds, so that the least number of them add up to enough."""
        return (self.settings.noise or 0.0) * self.norm / sqrt(self.adding)

    @property
    def voters(self) -> int:
        """As many clients as sums of signs are taken to be of."""
        return max(round(self.clients), 1)

    def generator(self, *names: str | int) -> torch.Generator:
        """Noise by name."""
        return torch_stream(self.seed, "privacy", *names)

    def needs_signs(self, exchange: Exchange) -> bool:
        """Whether anything that moves the model is made of sums of signs."""
        return "signs" in quantities(exchange)

    def noisy(
        self, total: Tensor, signs: Tensor | None, bound: float, noise: Multipliers, generator: torch.Generator
    ) -> Sums:
        """Sums of updates no longer than ``bound``, and of their signs, as an onlooker may know them.

        Signs are whole numbers again, none larger than there are clients; what is made of noisy sums stays private.
        """
        size, voters = len(total), self.voters
        total = total + _normal(total, generator).mul_(noise.updates * bound)
        if signs is None or noise.signs is None:
            return Sums(total, None, voters, self.clients)
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


def check_private(schedule: Schedule, guard: Guard, secure: Secure | None) -> None:
    """Refuse a schedule in which a client can change more than noise on sums hides."""
    if secure is None:
        _check_guard(guard)
    elif secure.norm is None:
        raise ConfigError("privacy: noise protects only what is bounded, within secure sums by clients; expected norm")
    for stage in schedule.all:
        searches = ["a search looks at each client's own gradient; expected no search"] if stage.search else []
        for reason in (*searches, *(reason for each in stage.exchanges for reason in _unbounded(each, guard, secure))):
            raise ConfigError(f"privacy, stage '{stage.name}': {reason}")


def _check_guard(guard: Guard) -> None:
    """Refuse a guard that does not bound how much a client can change a sum."""
    if guard.clip is None:
        raise ConfigError("privacy: noise protects only what is bounded; expected guard.clip = 'fixed' or 'adaptive'")
    if not isinstance(guard.clip, Fixed | Adaptive):
        raise ConfigError(
            f"privacy: the bound of guard.clip = '{guard.clip.registered_name()}' follows from the updates themselves; "
            "expected 'fixed' or 'adaptive'"
        )
    if guard.max_share is not None:
        raise ConfigError("privacy: guard.max_share lets a client change how much others count; expected max_examples")


def _unbounded(exchange: Exchange, guard: Guard, secure: Secure | None) -> Iterator[str]:
    """What of an exchange no noise hides."""
    reason = beyond_sums(exchange)
    if reason is not None:
        yield reason
    asked = [each for each in quantities(exchange) if secure is not None or each != "signs"]
    if asked:
        yield f"no noise is added to sums of {' and '.join(asked)}; expected a rule that needs none, and no pace"
    if exchange.weights == "samples" and secure is not None:
        yield "within secure sums clients count alike; expected weights = 'uniform', found 'samples'"
    if exchange.weights == "samples" and guard.max_examples is None:
        yield "weights by samples have no bound; expected guard.max_examples, or weights = 'uniform'"
