"""Options that several commands share, and what they stand for in a config."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedpace.core import ConfigError, trusted_files


def _trusted(context: typer.Context, given: bool) -> bool:
    """Until the command ends."""
    if given:
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
    """The seeds of an option."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text}: expected whole numbers separated by commas, for example 0,1,2") from None
