"""Progress bars: rounds, accuracy and time left. Quiet when the output is not a terminal."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedpace.engine import Listener, Record


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


def note(record: Record) -> str:
    """Stage and accuracy of a round, as the bar shows them."""
    accuracy = record.get("accuracy")
    measured = f" {accuracy:6.2%}" if accuracy is not None else ""
    return f"[cyan]{record['stage']}[/]{measured}"


class RunProgress(Listener):
    """One bar for one run, and its warnings above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = progress_bars(console)

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def started(self, config: dict[str, Any], rounds: int, first_round: int) -> None:
        """Draw the bar."""
        name = f"{escape(str(config.get('method', 'run')))} · seed {config.get('seed', 0)}"
        self._task = self._bars.add_task(name, total=rounds, completed=first_round, note="")

    def warned(self, message: str) -> None:
        """Print a warning."""
        self._console.print(f"[yellow]warning:[/] {escape(message)}", highlight=False, soft_wrap=True)

    def finished_round(self, record: Record) -> None:
        """Advance."""
        self._bars.update(self._task, completed=record["round"] + 1, note=note(record))

    def ended(self, folder: Path | None) -> None:
        """Nothing: the bar stays as it is."""
