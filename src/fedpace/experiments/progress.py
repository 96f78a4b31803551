"""Progress bars: rounds, accuracy and time left. Quiet when the output is not a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedpace.core import RoundRecord, for_terminal
from fedpace.engine import Listener
from fedpace.tasks import metric_named


def progress_bars(console: Console) -> Progress:
    """Bars with the columns that a run needs; nothing is drawn unless the console is a terminal."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def note(record: RoundRecord) -> str:
    """Stage and headline metric of a round, and ε where the run is private, as the bar shows them."""
    told = "" if record.epsilon is None else f"ε {record.epsilon:.2f}"
    local = "" if record.local_epsilon is None else f"local ε {record.local_epsilon:.2f}"
    stage = f"[cyan]{for_terminal(record.stage)}[/]"
    return " ".join(filter(None, (stage, for_terminal(measured(record)), told, local)))


def measured(record: RoundRecord) -> str:
    """The headline metric and its value; nothing in a round that was not measured."""
    name = next(iter(record.metrics), "")
    return "" if record.headline is None else f"{name} {metric_named(name).text(record.headline)}"


class _Bars:
    """Bars that are drawn within a ``with`` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = progress_bars(console)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


class BatchProgress(_Bars):
    """One bar for all rounds of a batch, and one for each run that is under way: fifty runs fit on a screen."""

    def __init__(self, console: Console, runs: Mapping[Path, tuple[str, int]]) -> None:
        super().__init__(console)
        self._runs = runs
        self._done = dict.fromkeys(runs, 0)
        self._tasks: dict[Path, TaskID] = {}
        self._all = self._bars.add_task("all runs", total=sum(rounds for _, rounds in runs.values()), note="")

    def show(self, folder: Path, records: Sequence[RoundRecord]) -> None:
        """Show how far a run has come; it appears with its first round and vanishes with its last."""
        title, rounds = self._runs[folder]
        if not records:
            return
        if folder not in self._tasks:
            self._tasks[folder] = self._bars.add_task(
                for_terminal(title), total=rounds, completed=len(records), note=""
            )
        under_way = len(records) < rounds
        self._bars.update(self._tasks[folder], completed=len(records), note=note(records[-1]), visible=under_way)
        self._done[folder] = len(records)
        finished = sum(self._done[run] >= rounds for run, (_, rounds) in self._runs.items())
        self._bars.update(self._all, completed=sum(self._done.values()), note=f"{finished} of {len(self._runs)} done")


class RunProgress(_Bars, Listener):
    """One bar for one run, and its warnings above it."""

    def started(self, config: dict[str, Any], rounds: int, first_round: int) -> None:
        """Draw the bar."""
        name = f"{for_terminal(config.get('method', 'run'))} · seed {config.get('seed', 0)}"
        self._task = self._bars.add_task(name, total=rounds, completed=first_round, note="")

    def warned(self, message: str) -> None:
        """Print a warning."""
        self._console.print(f"[yellow]warning:[/] {for_terminal(message)}", highlight=False, soft_wrap=True)

    def finished_round(self, record: RoundRecord) -> None:
        """Advance."""
        self._bars.update(self._task, completed=record.round + 1, note=note(record))
