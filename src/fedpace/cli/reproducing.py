"""Run what a table or figure of a paper needs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli.options import AsJson, Most, Set, UntilDecided, Workers
from fedpace.cli.printing import err_console, out_console, print_files, print_json
from fedpace.core import for_terminal


class ScaleOption(StrEnum):
    """How much of a reproduction is run."""

    smoke = "smoke"
    quick = "quick"
    full = "full"


def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure (see 'fedpace list reproductions').")],
    scale: Annotated[ScaleOption, typer.Option(help="Seconds, minutes, or the paper's setting.")] = ScaleOption.quick,
    set_: Set = None,
    until_decided: UntilDecided = None,
    most: Most = 30,
    runs: Annotated[Path, typer.Option(help="Folder of the runs; what is there is not run again.")] = Path(
        "runs/reproduce"
    ),
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: docs/results if full, else beside the runs.")
    ] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Run what a table or figure of a paper needs, and show the paper's numbers beside ours.

    NAME is one of 'fedpace list reproductions'.
    """
    from fedpace.experiments.evidence_page import tables
    from fedpace.experiments.overrides import parse_overrides
    from fedpace.experiments.reproduce import reproduce
    from fedpace.experiments.sequential import UntilDecided

    changes = parse_overrides(set_ or [])
    until = None if until_decided is None else UntilDecided.of_points(until_decided, most)
    done = reproduce(
        name,
        scale.value,
        changes=changes,
        until_decided=until,
        runs=runs,
        out=out,
        workers=workers,
        console=err_console,
    )
    if as_json:
        print_json({**done.evidence, "files": done.files})
        return
    title, source = (for_terminal(done.evidence[key]) for key in ("title", "source"))
    out_console.print(f"[bold]{title}[/]\n{source}", highlight=False)
    for table in tables(done.evidence):
        out_console.print(table.rich())
    out_console.print("What differs from the paper:", highlight=False)
    for line in done.evidence["differs"]:
        out_console.print(f"  • {line}", highlight=False, markup=False)
    print_files(wrote=done.files)
