"""From seconds to tables: on the terminal, and in Markdown between marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.contest.setups import SetUp
from rich.console import Console
from rich.table import Table

BARE, COMPUTE = "bare loop", "compute alone"


@dataclass(frozen=True)
class Row:
    """What was measured of a contestant: seconds of rounds, seconds until the first one could begin, memory in MB."""

    label: str
    seconds: Sequence[float]
    start_up: float = 0.0
    memory: float = 0.0
    is_peer: bool = False


def headed(set_up: SetUp) -> list[str]:
    """The columns of a set-up's table."""
    columns = ["who", set_up.unit, "× bare loop", "× best peer"]
    return columns + ["start-up, s", "memory, MB"] * (set_up.unit == "ms per round")


def cells(set_up: SetUp, rows: Sequence[Row]) -> list[list[str]]:
    """The lines of a set-up's table: medians, and ratios round by round with their quartiles."""
    compute = next((row for row in rows if row.label == COMPUTE), None)
    times = {row.label: _times(set_up, row, compute) for row in rows}
    peers = [row.label for row in rows if row.is_peer]
    best = min(peers, key=lambda label: median(times[label])) if peers else None
    lines = []
    for row in rows:
        own = times[row.label]
        if row is compute:
            lines.append([row.label, f"({1000 * median(row.seconds) / set_up.cohort:.3g} in all)", "", ""])
            continue
        line = [row.label, f"{median(own):.3g}", _ratio(own, times.get(BARE)), _ratio(own, best and times[best])]
        if set_up.unit == "ms per round":
            line += [f"{row.start_up:.1f}", f"{row.memory:.0f}"]
        lines.append(line)
    return lines


def _times(set_up: SetUp, row: Row, compute: Row | None) -> list[float]:
    """In the set-up's unit, round by round."""
    if set_up.unit == "s per round":
        return list(row.seconds)
    if set_up.unit == "ms per round":
        return [1000 * seconds for seconds in row.seconds]
    beyond = compute.seconds if set_up.unit == "ms per client beyond compute" and compute else [0.0] * len(row.seconds)
    return [1000 * (whole - part) / set_up.cohort for whole, part in zip(row.seconds, beyond, strict=True)]


def _ratio(own: Sequence[float], other: Sequence[float] | None) -> str:
    if not other:
        return ""
    if own is other:
        return "1"
    ratios = np.divide(own, other)
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return f"{middle:.2f}" + f" ({low:.2f}–{high:.2f})" * (len(ratios) > 1)


def shown(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], console: Console) -> None:
    """Print a table."""
    table = Table(*columns, title=title)
    for line in lines:
        table.add_row(*line)
    console.print(table)


def markdown(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], below: str) -> str:
    """The same for a page."""
    rows = [columns, ["---", *["---:"] * (len(columns) - 1)], *lines]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{title}:\n\n{table}\n\n{below}"


def put(page: Path, mark: str, block: str) -> None:
    """Replace what stands between a mark and its end in a page; append it where the mark is missing."""
    text = page.read_text() if page.exists() else ""
    begin, end = f"<!-- measured: {mark} -->", "<!-- end of measured -->"
    marked = f"{begin}\n{block}\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    replaced: Callable[[re.Match[str]], str] = lambda found: marked  # noqa: E731  # backslashes in it stay
    page.write_text(pattern.sub(replaced, text) if begin in text else f"{text}{marked}\n")
