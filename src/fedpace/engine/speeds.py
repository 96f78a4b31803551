"""How long clients take for a turn, in virtual time: nothing sleeps, and no clock is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import exp
from typing import Annotated

from pydantic import Field, SerializeAsAny

from fedpace.client import Batches
from fedpace.core import Named, Registry, by_name, numpy_stream
from fedpace.data import Shard

Durations = Callable[[int], float]
"""Client → how long its turn takes."""


class Speeds(Named, ABC):
    """How long each client takes for a turn. It is drawn from the run's seed, and the same in all turns of a client."""

    @abstractmethod
    def duration(self, client: int, steps: int, seed: int) -> float:
        """The duration of a turn of so many local ``steps``."""

    def of(self, local: Batches, shards: Sequence[Shard], seed: int) -> Durations:
        """How long each client takes for its examples, when one asks."""
        return lambda client: self.duration(client, local.steps(shards[client]), seed)


speeds: Registry[Speeds] = Registry("speeds", Speeds)

AnySpeeds = SerializeAsAny[Annotated[Speeds, by_name(speeds)]]


@speeds.register("equal")
class EqualSpeeds(Speeds):
    """Every turn takes a time of 1."""

    def duration(self, client: int, steps: int, seed: int) -> float:
        """Always 1."""
        return 1.0


@speeds.register("lognormal")
class LognormalSpeeds(Speeds):
    """A turn takes e^(σz), with a z of each client from the normal distribution; the median client takes 1.

    ``sigma`` is σ: at 0.5 the slowest tenth of the clients takes 3.6 times as long as the fastest tenth, or longer.
    """

    sigma: float = Field(0.5, ge=0, le=5)

    def duration(self, client: int, steps: int, seed: int) -> float:
        """The client's own, however many steps it makes."""
        return exp(self.sigma * float(numpy_stream(seed, "speed", client).standard_normal()))


@speeds.register("by_examples")
class SpeedsByExamples(LognormalSpeeds):
    """A local step takes e^(σz): clients with more examples take longer, until they reach ``local.max_steps``."""

    def duration(self, client: int, steps: int, seed: int) -> float:
        """Proportional to the steps."""
        return steps * super().duration(client, steps, seed)
