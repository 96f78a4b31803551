"""Findings for a reader at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedpace.analysis.doctor._finding import Finding, checks
from fedpace.core import for_terminal


def findings_overview(findings: Sequence[Finding]) -> RenderableType:
    """Each finding with what was seen, why it matters, and what to try; or that there is none."""
    if not findings:
        return Text(f"Nothing found by the checks: {', '.join(checks.names())}.")
    return Group(*(_block(finding) for finding in findings))


def _block(finding: Finding) -> RenderableType:
    title = Text.from_markup(f"[bold]{for_terminal(finding.title)}[/]  [dim]{finding.check}[/]")
    lines = Text.from_markup(
        f"{for_terminal(finding.seen)}.\n[dim]Why it matters:[/] {for_terminal(finding.why)}.\n"
        f"[dim]Try:[/] [cyan]{for_terminal(finding.command)}[/]"
    )
    return Group(title, Padding(lines, (0, 0, 1, 2)))
