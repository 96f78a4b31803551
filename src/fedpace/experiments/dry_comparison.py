"""What a comparison would be, before it is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from fedpace.analysis import TextTable, duration
from fedpace.experiments.batch import Job, at_once, check_jobs, on_one_core
from fedpace.experiments.dry_run import DryRun, dry_run
from fedpace.experiments.parallel import forks


@dataclass(frozen=True)
class DryComparison:
    """The first run of each method, how many ``runs`` there would be, how many of them are ``done``, and how long.

    So many runs go ``at_once``. ``seconds`` are a guess for those that are not done.
    """

    methods: dict[str, DryRun]
    runs: int
    done: int
    at_once: int
    seconds: float

    def table(self) -> TextTable:
        """A row for each method."""
        methods = self.methods.values()
        return TextTable.of_columns(
            "Nothing was run; each run would be about",
            {
                "method": ("left", list(self.methods)),
                "rounds": ("right", [str(run.rounds) for run in methods]),
                "clients": ("right", [f"{run.cohort} of {run.clients}" for run in methods]),
                "parameters": ("right", [f"{run.parameters:,}" for run in methods]),
                "stages": ("left", [" → ".join(name for name, _ in run.stages) for run in methods]),
                "up": ("right", [decimal(run.bytes_up) for run in methods]),
                "down": ("right", [decimal(run.bytes_down) for run in methods]),
                "time": ("right", [duration(run.seconds) for run in methods]),
            },
            f"{self.runs} runs, of which {self.done} are done; the others, {self.at_once} at a time, take about "
            f"{duration(self.seconds)}",
        )


def dry_comparison(jobs: Sequence[Job], workers: int | None) -> DryComparison:
    """Say what jobs would do. Nothing is trained and nothing is written."""
    check_jobs(jobs, None, None)
    side_by_side = at_once(jobs, workers)
    alone = on_one_core if forks(side_by_side) else lambda config: config
    first = {job.label: job.config for job in reversed(jobs)}
    methods = {label: dry_run(alone(first[label])) for label in dict.fromkeys(job.label for job in jobs)}
    left = [job for job in jobs if not job.complete]
    seconds = sum(methods[job.label].seconds for job in left) / side_by_side
    return DryComparison(methods, len(jobs), len(jobs) - len(left), side_by_side, seconds)
