"""What a finding is, and how all checks together make a diagnosis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedpace.analysis.runs import Methods, ReportedRun, by_method
from fedpace.core import Named, Registry


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        check: The name of the check that found it.
        weight: How much it is likely to cost, from 0 (worth knowing) to 1 (the run is worth nothing): findings are
            sorted by it.
        title: What is wrong, in a few words.
        seen: What was seen: figures, rounds, clients by name.
        why: Why it matters.
        command: One command to try.

    """

    check: str
    weight: float
    title: str
    seen: str
    why: str
    command: str


class Check(Named, ABC):
    """Looks for one fault in some runs, given by method. Parameters are its thresholds."""

    @abstractmethod
    def __call__(self, methods: Methods) -> Iterator[Finding]:
        """What it finds; nothing where the runs do not show the fault, or did not measure what would show it."""


class MethodCheck(Check):
    """A check that looks at the runs of one method after another, each of another seed."""

    def __call__(self, methods: Methods) -> Iterator[Finding]:
        """What it finds in each."""
        for runs in methods.values():
            yield from self.of_method(runs)

    @abstractmethod
    def of_method(self, runs: Sequence[ReportedRun]) -> Iterator[Finding]:
        """What it finds in the runs of a method."""


checks: Registry[Check] = Registry("check", Check)


def diagnose(runs: Sequence[ReportedRun]) -> list[Finding]:
    """What all checks find in some runs, worst first. Those of one label are seeds of one method."""
    methods = by_method(runs)
    found = [finding for name in checks.names() for finding in checks.get(name)()(methods)]
    return sorted(found, key=lambda finding: -finding.weight)
