"""Train one method."""

from __future__ import annotations

from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedpace.cli.options import (
    Alpha,
    AsJson,
    Clients,
    DataName,
    DryRun,
    Model,
    Partition,
    Rounds,
    Set,
    Trust,
    given_partition,
    given_settings,
)
from fedpace.cli.printing import err_console, out_console, print_files, print_json
from fedpace.core import for_terminal, slug

if TYPE_CHECKING:
    from fedpace.experiments import RunConfig
    from fedpace.experiments.engines import Engine


class EngineOption(StrEnum):
    """Where a run's clients live."""

    local = "local"
    flower_inprocess = "flower-inprocess"
    flower_simulation = "flower-simulation"
    flower_deployment = "flower-deployment"


def run(
    preset: Annotated[str, typer.Argument(help="Name of a preset (see 'fedpace list presets') or a TOML file.")],
    set_: Set = None,
    data: DataName = None,
    partition: Partition = None,
    alpha: Alpha = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Decides about partition, initial model and training.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/PRESET-DATA-seedN.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, if any.")] = False,
    engine: Annotated[EngineOption, typer.Option(help="Where clients live: here, or on Flower.")] = EngineOption.local,
    superlink: Annotated[str, typer.Option(help="flower-deployment: a connection of the flwr command.")] = "local",
    timeout: Annotated[float, typer.Option(min=1, help="flower-deployment: seconds to wait for a node.")] = 600,
    dry_run: DryRun = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train with one method.

    PRESET is a name ('fedpace list methods'), or a TOML file of yours. Rounds, checkpoints, the trained model and a
    picture are written to a folder, which 'fedpace show' shows.
    """
    from fedpace.experiments import load_config

    overrides = given_settings(set_, data, model, rounds, given_partition(partition, alpha, clients), seed)
    config = load_config(preset, overrides)
    if dry_run:
        _say(config, as_json=as_json)
        return
    from fedpace.experiments.engines import run_on
    from fedpace.experiments.progress import RunProgress

    seed = config.seed
    folder = out or Path("runs") / f"{slug(config.method)}-{slug(Path(config.data.source).stem)}-seed{seed}"
    with RunProgress(err_console) as progress:
        if engine is EngineOption.flower_deployment:
            from fedpace.experiments.deployment import deploy

            settings = {**overrides, "seed": seed}
            result = deploy(
                config, preset, settings, superlink, folder, resume=resume, timeout=timeout, listeners=[progress]
            )
        else:
            result = run_on(cast("Engine", engine.value), config, out=folder, resume=resume, listeners=[progress])
    if as_json:
        print_json({"folder": str(folder), "summary": result.summary, "warnings": result.warnings})
        return
    plot = folder / "curves.png"
    result.plot(plot)
    summary, metric = result.summary, result.metric
    values = {"final": summary.final, "best": summary.best, "last ten": summary.last10}
    said = ", ".join(f"{name} {metric.text(value)}" for name, value in values.items())
    similarity = "" if isnan(summary.similarity) else f", mean similarity {summary.similarity:+.3f}"
    what = for_terminal(f"{config.method} on {config.data.source}, seed {seed}")
    out_console.print(f"{what}: {metric.name} {said}, AUC {summary.auc:.3f}{similarity}", highlight=False)
    print_files(runs=[folder], wrote=[plot])


def _say(config: RunConfig, *, as_json: bool) -> None:
    """What a run would be."""
    from fedpace.experiments.dry_run import dry_run

    found = dry_run(config)
    if as_json:
        print_json(found)
    else:
        out_console.print(found.overview())
