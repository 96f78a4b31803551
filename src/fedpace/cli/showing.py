"""Look at what can be named, and at what was run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedpace.cli.options import AsJson
from fedpace.cli.printing import out_console, print_files, print_json
from fedpace.core import for_terminal


class Kind(StrEnum):
    """What ``fedpace list`` can list."""

    methods = "methods"
    presets = "presets"
    data = "data"
    models = "models"
    partitions = "partitions"
    shifts = "shifts"
    augmentations = "augmentations"
    attacks = "attacks"
    clippings = "clippings"
    rules = "rules"
    optimizers = "optimizers"
    tasks = "tasks"
    reproductions = "reproductions"


def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: AsJson = False) -> None:
    """List what can be named: methods, presets, data, tasks, models, partitions, shifts, rules, and so on."""
    from fedpace.experiments.catalogue import catalogue

    entries = catalogue(kind.value)
    if as_json:
        print_json(entries)
        return
    table = Table(kind.value, "", box=None, pad_edge=False)
    for name, text in entries.items():
        table.add_row(f"[bold]{for_terminal(name)}[/]", for_terminal(text))
    out_console.print(table)


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: AsJson = False,
) -> None:
    """Show what a run did: settings, accuracy, stages, conflict, cost."""
    from fedpace.analysis import run_overview, summarise
    from fedpace.engine import read_metric, read_rounds, read_run

    run, records = read_run(folder), read_rounds(folder)
    metric = read_metric(run)
    if as_json:
        summary = summarise(records, metric=metric)
        print_json({"config": run["config"], "summary": summary, "warnings": run.get("warnings", [])})
        return
    out_console.print(run_overview(run, records, metric))


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, or folders of runs.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "fedpace report",
) -> None:
    """Write one HTML file that opens without a network: tables, curves, who conflicts, in which layers, since when."""
    from fedpace.analysis import write_report
    from fedpace.experiments.reporting import read_runs

    print_files(wrote=[write_report(read_runs(folders), out, title)])
