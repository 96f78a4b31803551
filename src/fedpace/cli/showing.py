"""Look at what can be named, and at what was run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedpace.cli.options import AsJson, Trust
from fedpace.cli.printing import out_console, print_files, print_json
from fedpace.core import RunFolderError, did_you_mean, for_terminal, printable


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
    speeds = "speeds"
    staleness = "staleness"
    rules = "rules"
    optimizers = "optimizers"
    tasks = "tasks"
    wires = "wires"
    reproductions = "reproductions"


def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: AsJson = False) -> None:
    """List what can be named: methods, data, models, partitions, rules, and so on, each with a line about it.

    KIND is what to list. Methods can be compared; presets are methods and ablations, which leave out a part of one.
    """
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
    what: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or a preset.")],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show what a run did, or what a preset does.

    RUN is a run folder, the name of a preset, or a TOML file. Of a run you see settings, accuracy, stages, conflict and
    cost; of a preset what it is for, its stages, and its TOML.
    """
    from fedpace.experiments.preset_tables import is_preset, preset_names

    folder = Path(what)
    if is_preset(what) and not (folder / "run.json").exists():
        _show_preset(what, as_json=as_json)
    elif folder.exists():
        _show_run(folder, as_json=as_json)
    else:
        near = did_you_mean(what, preset_names())
        raise RunFolderError(f"{what}: is not a run folder (no run.json), and not a preset; {near}")


def _show_run(folder: Path, *, as_json: bool) -> None:
    from fedpace.analysis import run_overview, summarise
    from fedpace.engine import read_metric, read_rounds, read_run

    run, records = read_run(folder), read_rounds(folder)
    metric = read_metric(run)
    if as_json:
        summary = summarise(records, metric=metric)
        print_json({"config": run["config"], "summary": summary, "warnings": run.get("warnings", [])})
        return
    out_console.print(run_overview(run, records, metric))


def _show_preset(preset: str, *, as_json: bool) -> None:
    from fedpace.experiments.overviews import preset_overview
    from fedpace.experiments.preset_tables import preset_text
    from fedpace.experiments.presets import load_config

    if as_json:
        print_json(load_config(preset).model_dump(mode="json"))
        return
    out_console.print(preset_overview(preset))
    for line in preset_text(preset).splitlines():
        out_console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def config(
    key: Annotated[str, typer.Argument(help="A key, such as local.lr.")] = "",
    as_json: AsJson = False,
) -> None:
    """Explain a key of the config: its values, its default, what it means.

    Without a KEY you see which keys there are.
    """
    from fedpace.experiments.keys import below, explained
    from fedpace.experiments.overviews import config_overview, key_overview

    if as_json:
        print_json({"key": key, "explained": explained(key) if key else [], "below": below(key)})
        return
    out_console.print(key_overview(key) if key else config_overview())


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, or folders of runs.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "fedpace report",
) -> None:
    """Write one HTML file that opens without a network: tables, curves, who conflicts, in which layers, since when.

    RUN… are run folders, or folders of runs.
    """
    from fedpace.analysis import write_report
    from fedpace.experiments.reporting import read_runs

    print_files(wrote=[write_report(read_runs(folders), out, title)])
