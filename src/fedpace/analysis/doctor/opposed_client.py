"""A client that pulls against all others, who agree among themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
from pydantic import Field

from fedpace.analysis.doctor._finding import Finding, MethodCheck, checks
from fedpace.analysis.pairs import snapshots
from fedpace.analysis.runs import ReportedRun


@checks.register("opposed_client")
class OpposedClient(MethodCheck):
    """A client with a mean cosine below −``margin`` to the others, whose own mean is above ``margin``, round by round.

    Skewed labels alone make clients orthogonal rather than opposed, and all of them alike; flipped labels or signs make
    one opposed to everybody. At least four clients are needed to tell who is the one.
    """

    margin: float = Field(0.05, gt=0)
    share: float = Field(0.6, gt=0, le=1)  # of the rounds in which it took part

    def of_method(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """Each client against the rest, in every round that compared all pairs."""
        for run in runs:
            opposed: dict[int, list[float]] = {}
            seen: dict[int, int] = {}
            for shot in snapshots(run.records):
                if len(shot.clients) < 4:
                    continue
                for place, client in enumerate(shot.clients):
                    rest = np.delete(np.delete(shot.cosines, place, 0), place, 1)
                    to_others = float(np.nanmean(shot.cosines[place]))
                    seen[client] = seen.get(client, 0) + 1
                    if to_others < -self.margin and float(np.nanmean(rest)) > self.margin:
                        opposed.setdefault(client, []).append(to_others)
            for client, cosines in opposed.items():
                if len(cosines) > max(self.share * seen[client], 1):
                    yield self._finding(run, client, cosines, seen[client])

    def _finding(self, run: ReportedRun, client: int, cosines: Sequence[float], rounds: int) -> Finding:
        return Finding(
            self.registered_name(),
            weight=0.7,
            title=f"client {run.name_of(client)} pulls against all others",
            seen=f"{run.label}, seed {run.seed}: in {len(cosines)} of {rounds} rounds its mean cosine to the others "
            f"was below 0 ({fmean(cosines):+.2f} on average) while they agreed",
            why="its labels may be wrong, its data of another kind, or it may lie; a mean follows it by its weight",
            command=f"fedpace compare {run.method} --set aggregate.rule=multi_krum",
        )
