"""The command line: parses, calls, prints. Whatever a user can get wrong ends in one line and exit code 2."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

# The library is imported inside the commands: `fedpace --help` need not wait for torch.
if TYPE_CHECKING:
    from fedpace.experiments.batch import Job
    from fedpace.experiments.engines import Engine
    from fedpace.experiments.tuning import Tuned

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
data_app = typer.Typer(no_args_is_help=True, help="Look at data before training on it.")
app.add_typer(data_app, name="data")
attack_app = typer.Typer(no_args_is_help=True, help="Attack finished models, or compare what rules bore.")
app.add_typer(attack_app, name="attack")
flower_app = typer.Typer(no_args_is_help=True, help="Run on Flower: simulations and real deployments.")
app.add_typer(flower_app, name="flower")
out_console, err_console = Console(), Console(stderr=True)
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
STOPPED = {128 + number for number in ENDING}  # exit codes after these signals; typer's after Ctrl-C is the same
UsageError: Any = typer.BadParameter.__base__  # click's, or the copy of it within typer


def _trusted(context: typer.Context, given: bool) -> bool:
    """Until the command ends."""
    if given:
        from fedpace.core import trusted_files

        context.with_resource(trusted_files())
    return given


Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeat as needed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]
DataName = Annotated[str | None, typer.Option("--data", help="Name or path of the data.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", callback=_trusted, help="Files may name code to run (package.module:Name); you trust their authors."
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]
Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
Partition = Annotated[str | None, typer.Option(help="How the data are dealt to clients.")]
Alpha = Annotated[float | None, typer.Option(help="Concentration of a Dirichlet partition.")]
Clients = Annotated[int | None, typer.Option(help="Number of clients.")]
Model = Annotated[str | None, typer.Option(help="Name of a model, or package.module:factory.")]
UntilDecided = Annotated[
    float | None,
    typer.Option(
        metavar="WIDTH", help="Add seeds until each difference excludes 0 or its interval is narrower, in points."
    ),
]
Most = Annotated[int, typer.Option(help="--until-decided: give up at so many seeds.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core by default.")]


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


class EngineOption(StrEnum):
    """Where a run's clients live."""

    local = "local"
    flower_inprocess = "flower-inprocess"
    flower_simulation = "flower-simulation"
    flower_deployment = "flower-deployment"


class ScaleOption(StrEnum):
    """How much of a reproduction is run."""

    smoke = "smoke"
    quick = "quick"
    full = "full"


def main() -> None:
    """Entry point: one line instead of a traceback, unless ``--debug`` is given."""
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # python handles Ctrl-C; nohup and & have signals ignored
            signal.signal(number, _unwind)
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        # Not standalone: typer would print a usage error as a box of five lines and swallow an interrupt.
        code = app(arguments, prog_name="fedpace", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        message = _one_line(error)
        if debug or message is None:
            raise
        from fedpace.core import for_terminal

        if message:  # empty if the help was shown because there were no arguments
            err_console.print(f"[bold red]error:[/] {for_terminal(message)}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
    if code in STOPPED:
        err_console.print("stopped; finished rounds are kept: the same command goes on (run: with --resume)")
    raise SystemExit(code or 0)


def _unwind(number: int, _: object) -> None:
    """End orderly, so that worker processes end too; a terminal that closes may say so twice."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _one_line(error: Exception) -> str | None:
    """What to tell of a mistake of the user's; ``None`` for a defect of ours."""
    from fedpace.core import FedpaceError, one_line

    if isinstance(error, UsageError):
        error.ctx = None  # the message alone, without the usage
        return one_line(error.format_message())

    return str(error) if isinstance(error, FedpaceError) else None


@app.command()
def run(
    preset: Annotated[str, typer.Argument(help="Name of a preset (see 'fedpace list presets') or a TOML file.")],
    set_: Set = None,
    data: DataName = None,
    partition: Partition = None,
    alpha: Alpha = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed of data partition, initial model and training.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/PRESET-DATA-seedN.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    engine: Annotated[EngineOption, typer.Option(help="Our own engine, or Flower.")] = EngineOption.local,
    superlink: Annotated[str, typer.Option(help="flower-deployment: a connection of the flwr command.")] = "local",
    timeout: Annotated[float, typer.Option(min=1, help="flower-deployment: seconds to wait for a node.")] = 600,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train one method."""
    from fedpace.core import for_terminal, slug
    from fedpace.experiments import load_config
    from fedpace.experiments.engines import run_on
    from fedpace.experiments.progress import RunProgress

    overrides = _overrides(set_, data, model, rounds, _partition(partition, alpha, clients), seed)
    config = load_config(preset, overrides)
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
        _print_json({"folder": str(folder), "summary": result.summary, "warnings": result.warnings})
        return
    plot = folder / "curves.png"
    result.plot(plot)
    summary, metric = result.summary, result.metric
    values = {"final": summary.final, "best": summary.best, "last ten": summary.last10}
    said = ", ".join(f"{name} {metric.text(value)}" for name, value in values.items())
    similarity = "" if isnan(summary.similarity) else f", mean similarity {summary.similarity:+.3f}"
    what = for_terminal(f"{config.method} on {config.data.source}, seed {seed}")
    out_console.print(f"{what}: {metric.name} {said}, AUC {summary.auc:.3f}{similarity}", highlight=False)
    _print_files(runs=[folder], wrote=[plot])


@app.command()
def compare(
    methods: Annotated[list[str], typer.Argument(help="Presets or TOML files; the first one is the reference.")],
    data: DataName = None,
    seeds: Seeds = "0,1,2",
    set_: Set = None,
    partition: Partition = None,
    alpha: Alpha = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    tune: Annotated[
        int | None, typer.Option(metavar="N", help="Tune each method first, with N trials (see docs/guides/tuning.md).")
    ] = None,
    tuning_seeds: Annotated[str, typer.Option(help="Seeds to tune on; none of them is reported.")] = "1000,1001",
    until_decided: UntilDecided = None,
    most: Most = 30,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs, the table and the plot.")] = None,
    workers: Workers = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same seeds; a table with mean ± std and paired differences."""
    from fedpace.experiments.api import decided_jobs
    from fedpace.experiments.batch import plan_jobs, unfair_jobs
    from fedpace.experiments.sequential import UntilDecided
    from fedpace.experiments.tuning import tuned_variants, tuning_table

    until = None if until_decided is None else UntilDecided.of_points(until_decided, most)

    folder = out or _new_folder("compare")
    overrides = _overrides(set_, data, model, rounds, _partition(partition, alpha, clients))
    variants, reported = _labelled(methods), _seeds(seeds)
    tuned: list[Tuned] = []
    tuned_on = _seeds(tuning_seeds, "--tuning-seeds")
    if tune is not None:
        variants, tuned = tuned_variants(
            variants, tune, tuned_on, reported, overrides, folder, err_console, workers=workers
        )
        if not as_json:
            out_console.print(tuning_table(tuned).rich())
    jobs = plan_jobs(variants, reported, overrides, folder)
    unfair = unfair_jobs(jobs, meant=(key for one in tuned for key in one.settings))
    if until is not None:
        jobs = decided_jobs(until, variants, reported, overrides, folder, err_console, workers=workers, avoid=tuned_on)
    _run_and_report(
        jobs, folder, workers, as_json=as_json, unfair=unfair, tuned=tuned, sequential=until_decided is not None
    )


@app.command()
def sweep(
    preset: Annotated[str, typer.Argument(help="Name of a preset or a TOML file.")],
    grid: Annotated[list[str], typer.Option("--grid", metavar="KEY=V1,V2,…", help="Values to try; repeat for a grid.")],
    data: DataName = None,
    seeds: Seeds = "0",
    set_: Set = None,
    partition: Partition = None,
    alpha: Alpha = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs, the table and the plot.")] = None,
    workers: Workers = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train one method with every combination of some settings."""
    from fedpace.experiments.sweep import sweep_jobs

    folder = out or _new_folder("sweep")
    overrides = _overrides(set_, data, model, rounds, _partition(partition, alpha, clients))
    _run_and_report(sweep_jobs(preset, grid, _seeds(seeds), overrides, folder), folder, workers, as_json=as_json)


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: AsJson = False) -> None:
    """List what can be named: methods, presets, data, tasks, models, partitions, shifts, rules, and so on."""
    from fedpace.core import for_terminal
    from fedpace.experiments.catalogue import catalogue

    entries = catalogue(kind.value)
    if as_json:
        _print_json(entries)
        return
    table = Table(kind.value, "", box=None, pad_edge=False)
    for name, text in entries.items():
        table.add_row(f"[bold]{for_terminal(name)}[/]", for_terminal(text))
    out_console.print(table)


@app.command()
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
        _print_json({"config": run["config"], "summary": summary, "warnings": run.get("warnings", [])})
        return
    out_console.print(run_overview(run, records, metric))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, or folders of runs.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "fedpace report",
) -> None:
    """Write one HTML file that opens without a network: tables, curves, who conflicts, in which layers, since when."""
    from fedpace.analysis import write_report
    from fedpace.experiments.reporting import read_runs

    _print_files(wrote=[write_report(read_runs(folders), out, title)])


@app.command()
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
    """Run what a table or figure of a paper needs, and show the paper's numbers beside ours."""
    from fedpace.core import for_terminal
    from fedpace.experiments.evidence_page import tables
    from fedpace.experiments.presets import parse_overrides
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
        _print_json({**done.evidence, "files": done.files})
        return
    title, source = (for_terminal(done.evidence[key]) for key in ("title", "source"))
    out_console.print(f"[bold]{title}[/]\n{source}", highlight=False)
    for table in tables(done.evidence):
        out_console.print(table.rich())
    out_console.print("What differs from the paper:", highlight=False)
    for line in done.evidence["differs"]:
        out_console.print(f"  • {line}", highlight=False, markup=False)
    _print_files(wrote=done.files)


@data_app.command(name="show")
def data_show(
    source: Annotated[str, typer.Argument(help="Name or path of the data.")],
    partition: Partition = None,
    alpha: Alpha = None,
    clients: Clients = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the partition.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key below 'data', or a parameter of the partition."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Picture file (.png, .svg, .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw how many examples of each class every client holds."""
    from fedpace.core import slug
    from fedpace.data import counts_json, counts_table, save_counts_figure
    from fedpace.experiments.presets import load_config
    from fedpace.experiments.run import federate

    given = _overrides(
        [_below_data(text) for text in set_ or []], source, None, None, _partition(partition, alpha, clients), seed
    )
    federation = federate(load_config("fedavg", given))
    if as_json:
        _print_json(counts_json(federation))
        return
    out_console.print(counts_table(federation))
    path = out or Path("runs") / f"{slug(federation.name)}.png"
    save_counts_figure(federation, path)
    _print_files(picture=[path])


@attack_app.command(name="membership")
def attack_membership(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    examples: Annotated[int, typer.Option(help="Training examples, and as many test examples, to draw.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the attack.")] = 0,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="logits, loss, lira or lira_offline; repeat as needed. Default: logits, loss."),
    ] = None,
    shadows: Annotated[
        int | None, typer.Option(help="Shadow models of lira; each costs about as much as the run.")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Tell from a model's outputs what it was trained on: how much does it give away of its clients' data?"""
    from fedpace.experiments.attack import attack_membership, attack_table, chosen_adversaries

    by = chosen_adversaries(attack or ["logits", "loss"], shadows)
    runs = [
        attack_membership(folder, by=adversary, examples=examples, seed=seed, console=err_console)
        for folder in folders
        for adversary in by
    ]
    if as_json:
        _print_json(runs)
        return
    out_console.print(attack_table(runs).rich())


@attack_app.command(name="byzantine")
def attack_byzantine(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare what rules bear: runs with attackers (--set attackers=0.2 --set attack=sign_flip) and without."""
    from fedpace.experiments.byzantine import byzantine_tables, read_attacked

    runs = [read_attacked(folder) for folder in folders]
    if as_json:
        _print_json(runs)
        return
    for table in byzantine_tables(runs):
        out_console.print(table.rich())


@flower_app.command("new")
def flower_new(
    folder: Annotated[Path, typer.Argument(help="A new folder; its name becomes the app's.")],
    preset: Annotated[str, typer.Argument(help="Name of a preset (see 'fedpace list presets').")] = "fedpace",
    set_: Set = None,
    out: Annotated[Path, typer.Option(help="Run folder, on the machine of the ServerApp.")] = Path("runs/flower"),
    trust: Trust = False,
) -> None:
    """Write a Flower app for a preset: 'flwr run FOLDER' starts it."""
    from fedpace.experiments import load_config
    from fedpace.experiments.flower_app import write_app
    from fedpace.experiments.presets import parse_overrides

    settings = parse_overrides(set_ or [])
    write_app(folder, load_config(preset, settings), preset, settings, out)
    _print_files(wrote=sorted(path for path in folder.rglob("*") if path.is_file()))


def _run_and_report(
    jobs: list[Job],
    folder: Path,
    workers: int | None,
    *,
    as_json: bool,
    unfair: str | None = None,
    tuned: Sequence[Tuned] = (),
    sequential: bool = False,
) -> None:
    """Run, print and write what a comparison shows; ``unfair`` says what else differs between its methods."""
    from fedpace.analysis import write_report
    from fedpace.core import for_terminal, write_text
    from fedpace.experiments.api import comparison
    from fedpace.experiments.batch import run_batch
    from fedpace.experiments.reporting import reported

    results = run_batch(jobs, err_console, workers=workers)
    compared = comparison(jobs, results, sequential=sequential)
    plot, table, page = (folder / name for name in ("comparison.png", "comparison.md", "report.html"))
    compared.plot(plot)
    write_text(table, compared.to_markdown() + "\n")
    write_report([reported(job.label, result) for job, result in zip(jobs, results, strict=True)], page)
    warnings = dict.fromkeys(filter(None, (unfair, *(text for result in results for text in result.warnings))))
    if as_json:
        tuning = {"tuning": tuned} if tuned else {}
        _print_json({**compared.to_json(), **tuning, "warnings": list(warnings), "folder": str(folder)})
        return
    for warning in warnings:
        err_console.print(f"[yellow]warning:[/] {for_terminal(warning)}", highlight=False, soft_wrap=True)
    out_console.print(compared.table())
    _print_files(runs=[folder], wrote=[table, plot, page, *([folder / "tuning.json"] if tuned else [])])


def _overrides(
    assignments: list[str] | None,
    data: str | None,
    model: str | None,
    rounds: int | None,
    partition: dict[str, Any],
    seed: int | None = None,
) -> dict[str, Any]:
    """What options and ``--set`` change; all of it must hold together."""
    from fedpace.experiments.presets import joined, parse_overrides

    options = {"data.source": data, "model": model, "rounds": rounds, "seed": seed}
    options |= {f"data.partition.{key}": value for key, value in partition.items()}
    return joined(
        {key: value for key, value in options.items() if value is not None}, parse_overrides(assignments or [])
    )


def _below_data(assignment: str) -> str:
    """A key of the config; without its tables it is ``size`` or a parameter of the partition."""
    if assignment.startswith("data."):
        return assignment
    return f"data.{'' if assignment.startswith('size=') else 'partition.'}{assignment}"


def _partition(name: str | None, alpha: float | None, clients: int | None) -> dict[str, Any]:
    options = {"name": name, "alpha": alpha, "clients": clients}
    return {key: value for key, value in options.items() if value is not None}


def _labelled(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Presets under their own names, TOML files under theirs without folder and suffix."""
    from fedpace.core import ConfigError

    found: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(methods):
        label = Path(method).stem if method.endswith(".toml") else method
        if label in found:
            raise ConfigError(f"two methods are called '{label}' ({found[label]['method']}, {method}); rename a file")
        found[label] = {"method": method}
    return found


def _seeds(text: str, option: str = "--seeds") -> list[int]:
    from fedpace.core import ConfigError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text}: expected whole numbers separated by commas, for example 0,1,2") from None


def _new_folder(what: str) -> Path:
    return Path("runs") / f"{what}-{datetime.now():%Y%m%d-%H%M%S}"


def _print_json(content: Any) -> None:
    from dataclasses import asdict, is_dataclass

    def plain(value: Any) -> Any:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)

    # Through JSON once more, because a dataclass may hold NaN, which is no JSON.
    standard = json.loads(json.dumps(content, default=plain), parse_constant=lambda _: None)
    typer.echo(json.dumps(standard, indent=2, allow_nan=False))


def _print_files(**files: list[Path]) -> None:
    from fedpace.core import printable

    for what, paths in files.items():
        for path in paths:
            out_console.print(f"{what}:", printable(path), highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
