"""A client whose answers are mostly dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import Field

from fedpace.analysis.doctor._finding import Finding, MethodCheck, checks
from fedpace.analysis.runs import ReportedRun


@checks.register("lost_client")
class LostClient(MethodCheck):
    """More than ``share`` of a client's answers could not be used, and at least ``rounds`` of them."""

    share: float = Field(0.3, gt=0, lt=1)
    rounds: int = Field(2, ge=1)  # one may be an accident

    def of_method(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """Count by client, over all seeds: clients of the same number need not be the same, but faults repeat."""
        for run in runs:
            asked = Counter(client for record in run.records for client in record.cohort)
            reasons: dict[int, list[str]] = {}
            for record in run.records:
                for drop in record.dropped:
                    reasons.setdefault(drop.client, []).append(drop.reason)
            for client, found in sorted(reasons.items()):
                if len(found) >= self.rounds and len(found) > self.share * asked[client]:
                    yield self._finding(run, client, found, asked[client])

    def _finding(self, run: ReportedRun, client: int, reasons: Sequence[str], asked: int) -> Finding:
        reason, times = Counter(reasons).most_common(1)[0]
        return Finding(
            self.registered_name(),
            weight=0.8,
            title=f"client {run.name_of(client)} is lost",
            seen=f"{run.label}, seed {run.seed}: {len(reasons)} of its {asked} answers were dropped, {times} of them "
            f"because: {reason}",
            why="what only this client knows is not learnt, and nobody is told by the final figure",
            command=f"fedpace run {run.method} --set executor=serial --debug",
        )
