"""Our presets as a Flower app: the ServerApp, the ClientApp, and a folder that ``flwr run`` takes."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from string import Template
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpace.core import ConfigError, RoundRecord, for_markdown, trusted_files, write_text
from fedpace.engine import Listener
from fedpace.experiments.config import RunConfig
from fedpace.experiments.engines import node_of, run_on_grid
from fedpace.experiments.presets import load_config
from fedpace.experiments.progress import measured
from fedpace.flower import Node
from fedpace.flower import client_app as answering

_TEMPLATE = Path(__file__).parent / "flower_template"


def config_of(context: Context) -> RunConfig:
    """The run that an app's configuration describes: a preset, and settings that differ from it."""
    settings = json.loads(str(context.run_config.get("settings", "{}")))
    with trusted_files():  # whoever runs an app runs its code
        return load_config(str(context.run_config["preset"]), settings)


def client_app() -> ClientApp:
    """The clients of the run: each node loads the data that the preset names and takes the part of its partition-id."""

    def node(context: Context) -> Node:
        return node_of(config_of(context))

    return answering(node)


def server_app() -> ServerApp:
    """The server of the run. Started again, it goes on in its run folder where it was interrupted."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        out = Path(str(context.run_config["out"]))
        timeout = float(context.run_config.get("timeout", 600))
        again = (out / "run.json").exists()
        run_on_grid(config_of(context), grid, timeout, out=out, resume=again, listeners=[_Lines()])

    return app


class _Lines(Listener):
    """A line per round in Flower's log."""

    def finished_round(self, record: RoundRecord) -> None:
        said = ": ".join(filter(None, (record.stage, measured(record))))
        logging.getLogger("flwr").info("round %d, %s", record.round, said)


def write_app(
    folder: Path, config: RunConfig, preset: str, settings: dict[str, Any], out: Path, timeout: float = 600.0
) -> Path:
    """Write a complete Flower app for a ``config``, which is ``preset`` with ``settings``, for ``flwr run FOLDER``."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: expected a new or empty folder, found files in it")
    project = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,31}", project):  # what Flower accepts
        raise ConfigError(f"{folder}: expected a name of at most 32 letters, digits and hyphens, found '{project}'")
    package = project.replace("-", "_").lower()
    values = {
        "project": project,
        "package": package,
        "preset": preset,
        "settings": json.dumps(json.dumps(settings)),  # a JSON text as a TOML string
        "out": json.dumps(str(out)),
        "timeout": timeout,
        "clients": getattr(config.data.partition, "clients", None) or "N",
        "description": for_markdown(config.description),
    }
    for source in sorted(_TEMPLATE.rglob("*.tpl")):
        target = folder / str(source.relative_to(_TEMPLATE)).removesuffix(".tpl").replace("app/", f"{package}/")
        write_text(target, Template(source.read_text()).substitute(values))
    return folder
