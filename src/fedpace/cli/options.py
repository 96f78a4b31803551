"""Options that several commands share, and what they stand for in a config."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from fedpace.core import ConfigError, trusted_files

MOST_SEEDS = 10_000


def _trusted(context: typer.Context, given: bool) -> bool:
    """Until the command ends."""
    if given:
        context.with_resource(trusted_files())
    return given


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key of the config; repeat as needed ('fedpace config' lists keys)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]
DataName = Annotated[str | None, typer.Option("--data", help="A name ('fedpace list data') or the path of your data.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", callback=_trusted, help="Files may name code to run (package.module:Name); you trust their authors."
    ),
]
Rounds = Annotated[int | None, typer.Option(help="How many rounds; the stages of a preset move along.")]
Seeds = Annotated[str, typer.Option(help="Seeds: numbers and ranges, such as 0-4,7.")]
Partition = Annotated[str | None, typer.Option(help="How data are dealt to clients ('fedpace list partitions').")]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet: how alike clients are; 0.1 hardly, 100 very much.")]
Clients = Annotated[int | None, typer.Option(help="How many clients.")]
Model = Annotated[
    str | None, typer.Option(help="A name ('fedpace list models'), or your own: module:function, beside you.")
]
UntilDecided = Annotated[
    float | None,
    typer.Option(
        metavar="WIDTH", help="Add seeds until each difference excludes 0 or its interval is narrower, in points."
    ),
]
Most = Annotated[int, typer.Option(help="--until-decided: give up at so many seeds.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core by default.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only say what would run, what would travel and about how long it takes; write nothing."
    ),
]


def given_settings(
    assignments: list[str] | None,
    data: str | None,
    model: str | None,
    rounds: int | None,
    partition: dict[str, Any],
    seed: int | None = None,
) -> dict[str, Any]:
    """What options and ``--set`` change; all of it must hold together."""
    from fedpace.experiments.overrides import joined, parse_overrides

    options = {"data.source": data, "model": model, "rounds": rounds, "seed": seed}
    options |= {f"data.partition.{key}": value for key, value in partition.items()}
    return joined(
        {key: value for key, value in options.items() if value is not None}, parse_overrides(assignments or [])
    )


def given_partition(name: str | None, alpha: float | None, clients: int | None) -> dict[str, Any]:
    """What the options about the partition say of it."""
    options = {"name": name, "alpha": alpha, "clients": clients}
    return {key: value for key, value in options.items() if value is not None}


def parse_seeds(text: str, option: str = "--seeds") -> list[int]:
    """The seeds of an option: numbers and ranges with both ends.

    >>> parse_seeds("0-3,7")
    [0, 1, 2, 3, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        if match is None:
            raise ConfigError(f"{option} {text}: expected whole numbers separated by commas, or ranges, such as 0-4,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST_SEEDS:
            raise ConfigError(f"{option} {text}: expected a range of 1 to {MOST_SEEDS} seeds, found '{part.strip()}'")
        found += range(first, last + 1)
    return found
