"""A stage that was there and did nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedpace.analysis.doctor._finding import Finding, MethodCheck, checks
from fedpace.analysis.runs import ReportedRun


@checks.register("idle_stage")
class IdleStage(MethodCheck):
    """A search that accepted nothing in any round of any seed, or pruning that pruned nothing."""

    def of_method(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """Look at what the rounds of these stages changed."""
        records = [record for run in runs for record in run.records]
        label, method = runs[0].label, runs[0].method
        searches = [record.search for record in records if record.search is not None]
        if searches and not any(search.accepted for search in searches):
            yield self._finding(
                f"{label}: {len(searches)} searches tried {sum(search.candidates for search in searches)} points and "
                "accepted none",
                f"fedpace run {method} --set anneal.accept.beta=0.05",
            )
        if any(record.stage == "prune" for record in records) and not any(record.pruned for record in records):
            yield self._finding(
                f"{label}: no parameter was pruned in {sum(record.stage == 'prune' for record in records)} rounds",
                f"fedpace run {method} --set prune.threshold=0.4",
            )

    def _finding(self, seen: str, command: str) -> Finding:
        return Finding(
            self.registered_name(),
            weight=0.2,
            title="a stage did nothing",
            seen=seen,
            why="the run is that of a method without this stage, whatever its name says",
            command=command,
        )
