"""A run that ended while it was still getting better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from pydantic import Field

from fedpace.analysis.doctor._finding import Finding, MethodCheck, checks
from fedpace.analysis.history import metric_curve
from fedpace.analysis.runs import ReportedRun


@checks.register("not_converged")
class NotConverged(MethodCheck):
    """The last fifth of the rounds was better than the fifth before by more than ``gain`` of its value."""

    gain: float = Field(0.02, gt=0)

    def of_method(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """Means over seeds and rounds: a single curve jumps."""
        fifths = [_last_fifths(list(metric_curve(run.records).values())) for run in runs]
        pairs = [pair for pair in fifths if pair is not None]
        if not pairs:
            return
        before, last = (fmean(values) for values in zip(*pairs, strict=True))
        metric, rounds = runs[0].metric, len(runs[0].records)
        won = (last - before) * (1 if metric.rises else -1) / max(abs(before), 1e-9)
        if won > self.gain:
            yield Finding(
                self.registered_name(),
                weight=min(0.3 + won, 0.6),
                title="not yet converged",
                seen=f"{runs[0].label}: {metric.name} went from {before:.4g} to {last:.4g} in the last two fifths of "
                f"{rounds} rounds",
                why="methods that are compared before they converge are ranked by their speed",
                command=f"fedpace run {runs[0].method} --rounds {2 * rounds}",
            )


def _last_fifths(values: Sequence[float]) -> tuple[float, float] | None:
    size = len(values) // 5
    return (fmean(values[-2 * size : -size]), fmean(values[-size:])) if size else None
