"""A difference between methods that is smaller than what seeds make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from statistics import fmean, stdev

from pydantic import Field

from fedpace.analysis.doctor._finding import Check, Finding, checks
from fedpace.analysis.history import metric_curve
from fedpace.analysis.interval import paired_interval
from fedpace.analysis.runs import Methods, ReportedRun


@checks.register("seed_noise")
class SeedNoise(Check):
    """The interval of a method's paired difference to the first one contains 0, or there is only one seed.

    How many seeds would decide follows from the spread of the differences, if the mean stays what it is: that is a
    guess, and none is made beyond ``most``.
    """

    most: int = Field(200, ge=2)

    def __call__(self, methods: Methods) -> Iterator[Finding]:
        """Each method against the first."""
        (reference, base), *others = methods.items()
        finals = _finals(base)
        for label, runs in others:
            own = _finals(runs)
            differences = [own[seed] - finals[seed] for seed in own if seed in finals]
            if differences and not paired_interval(differences).excludes_zero:
                yield self._finding(label, reference, differences, runs[0])

    def _finding(self, label: str, reference: str, differences: Sequence[float], run: ReportedRun) -> Finding:
        found = paired_interval(differences)
        pairs = len(differences)
        bounds = f", [{found.low:+.3g}, {found.high:+.3g}]" if pairs > 1 else ""
        wanted = self._wanted(differences)
        guess = f"; about {wanted} seeds would decide if it stays so" if wanted is not None else ""
        return Finding(
            self.registered_name(),
            weight=0.4,
            title=f"{label} and {reference} cannot be told apart",
            seen=f"{run.metric.name} differs by {found.mean:+.3g}{bounds} over {pairs} seed{'s' * (pairs > 1)}{guess}",
            why="another seed deals other data: a difference within that noise is none",
            command=f"fedpace compare {reference} {label} --until-decided 1",
        )

    def _wanted(self, differences: Sequence[float]) -> int | None:
        mean = fmean(differences)
        if len(differences) < 2 or not mean:
            return None
        wanted = max(ceil((2.2 * stdev(differences) / mean) ** 2), len(differences) + 1)  # 2.2: t of about ten pairs
        return wanted if wanted <= self.most else None


def _finals(runs: Sequence[ReportedRun]) -> dict[int, float]:
    curves = {run.seed: list(metric_curve(run.records).values()) for run in runs}
    return {seed: curve[-1] for seed, curve in curves.items() if curve}
