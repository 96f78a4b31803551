"""Which clients take part in a round."""

from __future__ import annotations

from math import ceil

from pydantic import Field, model_validator

from fedpace.core import ConfigError, Settings, numpy_stream


class Cohort(Settings):
    """All clients, a ``fraction`` of them, or a fixed ``number``, drawn anew in every round.

    >>> Cohort(number=2).sample(5, seed=0, round=3) == Cohort(number=2).sample(5, seed=0, round=3)
    True
    """

    fraction: float | None = Field(None, gt=0, le=1)
    number: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> Cohort:
        if self.fraction is not None and self.number is not None:
            raise ValueError("give a fraction or a number of clients, not both")
        return self

    def size(self, clients: int) -> int:
        """Number of participants."""
        if self.number is not None and self.number > clients:
            raise ConfigError(f"cohort.number: {self.number} clients are to be sampled, but there are only {clients}")
        return self.number or ceil((self.fraction or 1.0) * clients - 1e-9)

    def sample(self, clients: int, *, seed: int, round: int) -> list[int]:
        """The participants of a round, in ascending order."""
        size = self.size(clients)
        if size == clients:
            return list(range(clients))
        drawn = numpy_stream(seed, "cohort", round).choice(clients, size, replace=False)
        return sorted(int(client) for client in drawn)
