"""Train several methods, or one with several settings, and compare them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpace.cli.options import (
    Alpha,
    AsJson,
    Clients,
    DataName,
    DryRun,
    Model,
    Most,
    Partition,
    Rounds,
    Seeds,
    Set,
    Trust,
    UntilDecided,
    Workers,
    given_partition,
    given_settings,
    parse_seeds,
)
from fedpace.cli.printing import err_console, out_console, print_files, print_json
from fedpace.core import ConfigError, for_terminal, write_text

if TYPE_CHECKING:
    from fedpace.experiments.batch import Job
    from fedpace.experiments.tuning import Tuned


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
        int | None, typer.Option(metavar="N", help="Tune each method first, with N trials on seeds of their own.")
    ] = None,
    tuning_seeds: Annotated[str, typer.Option(help="Seeds to tune on; none of them is reported.")] = "1000,1001",
    until_decided: UntilDecided = None,
    most: Most = 30,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs, the table and the plot.")] = None,
    workers: Workers = None,
    dry_run: DryRun = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same seeds and compare them: a table, a plot and a report.

    METHODS are names ('fedpace list methods') or TOML files. The table has mean ± std over seeds, and the paired
    difference to the first method with its interval. The same command again goes on where it ended, given --out.
    """
    from fedpace.experiments.api import decided_jobs
    from fedpace.experiments.batch import plan_jobs, unfair_jobs
    from fedpace.experiments.sequential import UntilDecided
    from fedpace.experiments.tuning import tuned_variants, tuning_table

    until = None if until_decided is None else UntilDecided.of_points(until_decided, most)

    folder = out or _new_folder("compare")
    overrides = given_settings(set_, data, model, rounds, given_partition(partition, alpha, clients))
    variants, reported = _labelled(methods), parse_seeds(seeds)
    tuned: list[Tuned] = []
    tuned_on = parse_seeds(tuning_seeds, "--tuning-seeds")
    if dry_run:
        _say(plan_jobs(variants, reported, overrides, folder), workers, as_json=as_json)
        if tune is not None:
            _note(f"not counted: tuning, up to {tune * len(tuned_on)} short runs of each method")
        if until is not None:
            _note(f"not counted: the seeds that --until-decided adds, up to {most} in all")
        return
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
    """Train with every combination of some settings, and compare them.

    PRESET is a name ('fedpace list methods'), or a TOML file of yours.
    """
    from fedpace.experiments.sweep import sweep_jobs

    folder = out or _new_folder("sweep")
    overrides = given_settings(set_, data, model, rounds, given_partition(partition, alpha, clients))
    _run_and_report(sweep_jobs(preset, grid, parse_seeds(seeds), overrides, folder), folder, workers, as_json=as_json)


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
    from fedpace.experiments.api import comparison
    from fedpace.experiments.batch import run_batch

    results = run_batch(jobs, err_console, workers=workers)
    compared = comparison(jobs, results, sequential=sequential)
    plot, table, page = (folder / name for name in ("comparison.png", "comparison.md", "report.html"))
    compared.plot(plot)
    write_text(table, compared.to_markdown() + "\n")
    write_report([result.reported(job.label) for job, result in zip(jobs, results, strict=True)], page)
    warnings = dict.fromkeys(filter(None, (unfair, *(text for result in results for text in result.warnings))))
    if as_json:
        tuning = {"tuning": tuned} if tuned else {}
        print_json({**compared.to_json(), **tuning, "warnings": list(warnings), "folder": str(folder)})
        return
    for warning in warnings:
        err_console.print(f"[yellow]warning:[/] {for_terminal(warning)}", highlight=False, soft_wrap=True)
    out_console.print(compared.table())
    print_files(runs=[folder], wrote=[table, plot, page, *([folder / "tuning.json"] if tuned else [])])


def _say(jobs: list[Job], workers: int | None, *, as_json: bool) -> None:
    """What a comparison would be."""
    from fedpace.experiments.dry_comparison import dry_comparison

    found = dry_comparison(jobs, workers)
    if as_json:
        print_json(found)
    else:
        out_console.print(found.table().rich())


def _note(text: str) -> None:
    err_console.print(text, highlight=False, soft_wrap=True)


def _labelled(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Presets under their own names, TOML files under theirs without folder and suffix."""
    from fedpace.experiments.preset_tables import known_preset, method_of

    found: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(map(known_preset, methods)):
        label = method_of(method)
        if label in found:
            raise ConfigError(f"two methods are called '{label}' ({found[label]['method']}, {method}); rename a file")
        found[label] = {"method": method}
    return found


def _new_folder(what: str) -> Path:
    return Path("runs") / f"{what}-{datetime.now():%Y%m%d-%H%M%S}"
