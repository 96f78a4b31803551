"""Clients that would be better off alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedpace.analysis.doctor._finding import Check, Finding, checks
from fedpace.analysis.interval import Interval, corrected_level, paired_interval
from fedpace.analysis.runs import Methods, ReportedRun

ALONE = "local_only"


@checks.register("harmed_clients")
class HarmedClients(Check):
    """Clients that are worse with a method than with local training, paired over seeds, all intervals together."""

    def __call__(self, methods: Methods) -> Iterator[Finding]:
        """Needs runs of the preset ``local_only`` with the same seeds."""
        alone = next((runs for runs in methods.values() if runs[0].method == ALONE), None)
        if alone is None:
            return
        for label, runs in methods.items():
            found = _harmed(runs, alone) if runs is not alone else {}
            if found:
                yield self._finding(label, runs[0], found)

    def _finding(self, label: str, run: ReportedRun, harmed: dict[int, Interval]) -> Finding:
        worst = sorted(harmed, key=lambda client: abs(harmed[client].mean), reverse=True)
        named = ", ".join(
            f"{run.name_of(client)} {harmed[client].mean:+.3g} [{harmed[client].low:+.3g}, {harmed[client].high:+.3g}]"
            for client in worst[:5]
        )
        return Finding(
            self.registered_name(),
            weight=0.6,
            title=f"better off alone: {len(harmed)} of the clients",
            seen=f"{label}: {run.metric.name} against training alone: {named}",
            why="they have no reason to take part; a method that leaves them a part of their own may give one",
            command=f"fedpace compare {ALONE} {run.method} fedrep apfl --set data.partition.test_share=0.25",
        )


def _harmed(runs: Sequence[ReportedRun], alone: Sequence[ReportedRun]) -> dict[int, Interval]:
    """Client → the interval of its difference, where that is on the wrong side of 0."""
    by_seed = {run.seed: run.records[-1].client_headlines for run in alone if run.records}
    differences: dict[int, list[float]] = {}
    for run in runs:
        own = run.records[-1].client_headlines if run.records else {}
        for client, value in own.items():
            if client in by_seed.get(run.seed, {}):
                differences.setdefault(client, []).append(value - by_seed[run.seed][client])
    level = corrected_level(0.95, max(len(differences), 1))
    intervals = {client: paired_interval(values, level) for client, values in differences.items()}
    rises = runs[0].metric.rises
    return {client: found for client, found in intervals.items() if (found.high < 0 if rises else found.low > 0)}
