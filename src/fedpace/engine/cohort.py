"""Which clients take part in a round."""

from __future__ import annotations

from math import ceil

import numpy as np
from pydantic import Field, model_validator

from fedpace.core import ConfigError, Settings, numpy_stream

MANY = 100_000  # clients beyond which a number for each would be a noticeable part of a round


class Cohort(Settings):
    """All clients, a ``fraction`` of them, or a fixed ``number``, drawn anew in every round.

    The last ``late`` clients are drawn from the round ``joins`` on, or never: fractions and numbers are of the others
    until then. Personalised methods measure them all along, others with ``measuring.clients = "all"``.

    >>> Cohort(number=2).sample(5, seed=0, round_number=3) == Cohort(number=2).sample(5, seed=0, round_number=3)
    True
    """

    fraction: float | None = Field(None, gt=0, le=1)
    number: int | None = Field(None, ge=1)
    late: int = Field(0, ge=0)
    joins: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> Cohort:
        if self.fraction is not None and self.number is not None:
            raise ValueError("give a fraction or a number of clients, not both")
        return self

    @model_validator(mode="after")
    def _late_ones_join(self) -> Cohort:
        if self.joins is not None and not self.late:
            raise ValueError("joins is the round of the late clients: expected late above 0 beside it")
        return self

    def size(self, clients: int, round_number: int = 0) -> int:
        """Number of participants."""
        there = self.there(clients, round_number)
        if self.number is not None and self.number > there:
            raise ConfigError(f"cohort.number: {self.number} clients are to be sampled, but there are only {there}")
        return self.number or ceil((self.fraction or 1.0) * there - 1e-9)

    def sample(self, clients: int, *, seed: int, round_number: int) -> list[int]:
        """The participants of a round, in ascending order."""
        size, there = self.size(clients, round_number), self.there(clients, round_number)
        if size == there:
            return list(range(there))
        return drawn(numpy_stream(seed, "cohort", round_number), there, size)

    def sample_by_chance(self, clients: int, *, seed: int, round_number: int) -> list[int]:
        """Participants that are drawn one by one: the config says how many they are on average.

        Of very many clients it is drawn first how many take part, and then who: their chances are the same.
        """
        chance, there = self.chance(clients, round_number), self.there(clients, round_number)
        rng = numpy_stream(seed, "cohort", round_number)
        if there > MANY:
            return drawn(rng, there, int(rng.binomial(there, chance)))
        found: list[int] = np.flatnonzero(rng.random(there) < chance).tolist()
        return found

    def chance(self, clients: int, round_number: int = 0) -> float:
        """The part of the clients that takes part, without rounding."""
        size = self.size(clients, round_number)  # which refuses a number that is too large
        return size / self.there(clients, round_number) if self.number is not None else self.fraction or 1.0

    def there(self, clients: int, round_number: int) -> int:
        """How many clients may be sampled, the first ones."""
        if self.late >= clients:
            raise ConfigError(f"cohort.late: expected fewer than all {clients} clients, found {self.late}")
        return clients if self.joins is not None and round_number >= self.joins else clients - self.late


def drawn(rng: np.random.Generator, clients: int, number: int) -> list[int]:
    """So many different ones of all clients, in ascending order; a small number costs the same of any population."""
    found: list[int] = np.sort(rng.choice(clients, number, replace=False)).tolist()
    return found
