"""Run on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli.options import Set, Trust
from fedpace.cli.printing import print_files


def flower_new(
    folder: Annotated[Path, typer.Argument(help="A new folder; its name becomes the app's.")],
    preset: Annotated[str, typer.Argument(help="Name of a preset (see 'fedpace list presets').")] = "fedpace",
    set_: Set = None,
    out: Annotated[Path, typer.Option(help="Run folder, on the machine of the ServerApp.")] = Path("runs/flower"),
    trust: Trust = False,
) -> None:
    """Write a Flower app for PRESET into a new FOLDER: 'flwr run FOLDER' starts it."""
    from fedpace.experiments import load_config
    from fedpace.experiments.flower_app import write_app
    from fedpace.experiments.overrides import parse_overrides

    settings = parse_overrides(set_ or [])
    write_app(folder, load_config(preset, settings), preset, settings, out)
    print_files(wrote=sorted(path for path in folder.rglob("*") if path.is_file()))
