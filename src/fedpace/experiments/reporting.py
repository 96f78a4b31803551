"""From run folders to the runs of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fedpace.analysis import ReportedRun
from fedpace.core import RunFolderError
from fedpace.experiments.run import Result


def read_runs(folders: Iterable[Path]) -> list[ReportedRun]:
    """The runs in some folders, each a run folder or a folder of them. The seeds of one method share its label."""
    found = [run for folder in folders for run in _run_folders(folder)]
    return [_read(run).reported(re.sub(r"-seed\d+$", "", run.resolve().name)) for run in found]


def _read(folder: Path) -> Result:
    result = Result.read(folder)
    if "seed" not in result.config:
        raise RunFolderError(f"{folder / 'run.json'}: expected a config with a seed, found none")
    return result


def _run_folders(folder: Path) -> list[Path]:
    if (folder / "run.json").exists():
        return [folder]
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    if not runs:
        raise RunFolderError(f"{folder}: is neither a run folder (no run.json) nor a folder of runs")
    return runs
