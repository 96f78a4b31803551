"""Pairs of runs are added until each difference is decided, with intervals that allow to look after every pair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic import Field, ValidationError

from fedpace.analysis import Interval, anytime_interval, corrected_level
from fedpace.core import ConfigError, Settings, first_error
from fedpace.experiments.batch import Job
from fedpace.experiments.run import Result

J = TypeVar("J", bound=Job)
Values = Mapping[Hashable, float]
"""What the runs of a method achieved, by what pairs them with another's: the seed, perhaps with a held-out domain."""


class UntilDecided(Settings):
    """When to stop: an interval excludes 0 or is narrower than ``width`` (a fraction); at the latest at ``most`` seeds.

    ``level`` holds for all differences of a comparison together, however many there are and however often one looks.
    """

    width: float = Field(gt=0, allow_inf_nan=False)
    most: int = Field(30, ge=2)
    level: float = Field(0.95, gt=0, lt=1)

    @classmethod
    def of_points(cls, points: float, most: int) -> UntilDecided:
        """From the command line, where a width is in points of accuracy; an error is one line."""
        try:
            return cls(width=points / 100, most=most)
        except ValidationError as error:
            raise ConfigError(f"--until-decided {points:g}, --most {most}: {first_error(cls, error)}") from None

    def decided(self, values: Values, reference: Values, effects: int) -> bool:
        """Whether more pairs would change nothing that was asked about one of so many ``effects``."""
        found = self.interval(values, reference, effects)
        return found.excludes_zero or found.width < self.width

    def interval(self, values: Values, reference: Values, effects: int) -> Interval:
        """The difference to the reference over common pairs."""
        pairs = [values[key] - reference[key] for key in values if key in reference]
        return anytime_interval(pairs, corrected_level(self.level, effects))


@dataclass
class Sequential(Generic[J]):
    """A comparison whose number of seeds is found on the way.

    Attributes:
        until: When to stop.
        versus: Method → the one it is compared with.
        plan: The jobs of some methods on some seeds.
        run: Runs jobs, or finds that they ran.
        pair: What pairs a job with another's.
        value: What is compared.
        avoid: Seeds that are never added, because something was tuned on them.

    """

    until: UntilDecided
    versus: Mapping[str, str]
    plan: Callable[[Collection[str], Sequence[int]], list[J]]
    run: Callable[[list[J]], list[Result]]
    pair: Callable[[J], Hashable]
    value: Callable[[Result], float]
    avoid: Collection[int] = ()
    _values: dict[str, dict[Hashable, float]] = field(default_factory=dict)

    def complete(self, seeds: Sequence[int]) -> list[J]:
        """Run ``seeds`` and then one more at a time, for the methods that are not decided yet; all jobs that ran."""
        used = list(dict.fromkeys(seeds))
        open_ = [method for method, other in self.versus.items() if method != other]
        done: dict[str, list[int]] = {}
        while open_:
            methods = dict.fromkeys([*(self.versus[method] for method in open_), *open_])
            jobs = self.plan(methods, used)
            for job, result in zip(jobs, self.run(jobs), strict=True):
                self._values.setdefault(job.label, {})[self.pair(job)] = self.value(result)
            done |= {method: list(used) for method in methods}
            open_ = [method for method in open_ if not self._decided(method)]
            if len(used) >= self.until.most:
                break
            used.append(next(seed for seed in range(max(used) + 1, max(used) + 1_000_000) if seed not in self.avoid))
        return [job for method in self.versus for job in self.plan([method], done.get(method, list(seeds)))]

    def _decided(self, method: str) -> bool:
        effects = sum(method != other for method, other in self.versus.items())
        return self.until.decided(self._values[method], self._values[self.versus[method]], effects)
