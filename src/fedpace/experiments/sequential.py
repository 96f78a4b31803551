"""Pairs of runs are added until each difference is decided, with intervals that allow to look after every pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import Field, ValidationError

from fedpace.analysis import Interval, anytime_interval, corrected_level
from fedpace.core import ConfigError, Settings, first_error

Values = Mapping[int, float]  # seed → what a run achieved
RunSeeds = Callable[[Sequence[str], Sequence[int]], Mapping[str, Values]]
"""Runs some methods on some seeds (or finds that they ran) and returns every value known so far, by method."""


class UntilDecided(Settings):
    """When to stop adding pairs: an interval excludes 0 or is narrower than ``width``; at the latest after ``most``.

    ``level`` holds for all differences of a comparison together, however many there are.
    """

    width: float = Field(gt=0, allow_inf_nan=False)
    most: int = Field(30, ge=2)
    level: float = Field(0.95, gt=0, lt=1)

    @classmethod
    def of(cls, width: float, most: int | None = None) -> UntilDecided:
        """From the command line: an error is one line."""
        try:
            return cls(width=width, **({} if most is None else {"most": most}))
        except ValidationError as error:
            raise ConfigError(f"--until-decided: {first_error(cls, error)}") from None

    def decided(self, interval: Interval) -> bool:
        """Whether more pairs would change nothing that was asked."""
        return interval.excludes_zero or interval.width < self.width

    def interval(self, values: Values, reference: Values, effects: int) -> Interval:
        """The difference to the reference over common seeds, one of so many ``effects``."""
        common = sorted(values.keys() & reference.keys())
        return anytime_interval(
            [values[seed] - reference[seed] for seed in common], corrected_level(self.level, effects)
        )

    def run(self, versus: Mapping[str, str], seeds: Sequence[int], run: RunSeeds, step: int = 1) -> dict[str, int]:
        """Run ``seeds`` and then further ones, ``step`` at a time, for the methods that are not decided yet.

        ``versus``: method → the one it is compared with. Returns the number of pairs that each method needed.
        """
        used = list(dict.fromkeys(seeds))
        open_ = list(versus)
        needed: dict[str, int] = {}
        while True:
            known = run(list(dict.fromkeys([*(versus[method] for method in open_), *open_])), used)
            for method in list(open_):
                found = self.interval(known[method], known[versus[method]], len(versus))
                needed[method] = len(known[method].keys() & known[versus[method]].keys())
                if self.decided(found) or needed[method] >= self.most:
                    open_.remove(method)
            if not open_:
                return needed
            used += _further(used, min(step, self.most - len(used)) or 1)


def _further(used: Iterable[int], count: int) -> list[int]:
    """The next seeds after the highest used one."""
    first = max(used) + 1
    return list(range(first, first + count))
