"""Why is it not better? The doctor looks at what was run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli.options import AsJson
from fedpace.cli.printing import out_console, print_json


def doctor(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, or folders of runs.")],
    as_json: AsJson = False,
) -> None:
    """Say what may be wrong with runs, worst first: what was seen, why it matters, and a command to try.

    RUN is a run folder, or a folder of runs such as that of a comparison.
    """
    from dataclasses import asdict

    from fedpace.analysis import diagnose
    from fedpace.analysis.doctor.overview import findings_overview
    from fedpace.experiments.reporting import read_runs

    found = diagnose(read_runs(paths))
    if as_json:
        print_json([asdict(finding) for finding in found])
        return
    out_console.print(findings_overview(found))
