"""Which commands there are. Each imports the library when it runs: `fedpace --help` need not wait for torch."""

from __future__ import annotations

from typing import Annotated

import typer

from fedpace import __version__
from fedpace.cli.attacking import attack_byzantine, attack_membership
from fedpace.cli.comparing import compare, sweep
from fedpace.cli.data import data_show
from fedpace.cli.diagnosing import doctor
from fedpace.cli.flower import flower_new
from fedpace.cli.reproducing import reproduce
from fedpace.cli.showing import config, list_, report, show
from fedpace.cli.training import run


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedpace {__version__}")
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated learning for clients that disagree.",
)


@app.callback()
def fedpace(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command()(run)
app.command()(compare)
app.command()(sweep)
app.command("list")(list_)
app.command()(show)
app.command()(config)
app.command()(doctor)
app.command()(report)
app.command()(reproduce)

data_app = typer.Typer(no_args_is_help=True, help="Look at data before training on it.")
data_app.command("show")(data_show)
app.add_typer(data_app, name="data")

attack_app = typer.Typer(no_args_is_help=True, help="Attack finished models, or compare what rules bore.")
attack_app.command("membership")(attack_membership)
attack_app.command("byzantine")(attack_byzantine)
app.add_typer(attack_app, name="attack")

flower_app = typer.Typer(no_args_is_help=True, help="Run on Flower: simulations and real deployments.")
flower_app.command("new")(flower_new)
app.add_typer(flower_app, name="flower")
