"""A run that ended while it was still getting better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from pydantic import Field

from fedpace.analysis.doctor._finding import Check, Finding, checks
from fedpace.analysis.history import metric_curve
from fedpace.analysis.report import ReportedRun


@checks.register("not_converged")
class NotConverged(Check):
    """The last fifth of the rounds still won more than ``gain`` over the fifth before, in the metric's direction."""

    gain: float = Field(0.02, gt=0)

    def __call__(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """Means over the seeds: a single curve jumps."""
        fifths = [_last_fifths(list(metric_curve(run.records).values())) for run in runs]
        before, last = (fmean(values) for values in zip(*filter(None, fifths), strict=True)) if any(fifths) else (0, 0)
        metric, rounds = runs[0].metric, len(runs[0].records)
        won = (last - before) * (1 if metric.rises else -1)
        if won > self.gain * max(abs(before), 1e-9):
            yield Finding(
                self.registered_name(),
                weight=min(0.3 + won / max(abs(before), 1e-9), 0.6),
                title="Not yet converged",
                seen=f"{metric.name} went from {before:.4g} to {last:.4g} in the last two fifths of {rounds} rounds.",
                why="Methods that are compared before they converge are ranked by their speed.",
                command=f"fedpace run {runs[0].config.get('method', 'fedavg')} --rounds {2 * rounds}",
            )


def _last_fifths(values: Sequence[float]) -> tuple[float, float] | None:
    size = len(values) // 5
    return (fmean(values[-2 * size : -size]), fmean(values[-size:])) if size else None
