"""Attack finished models, or compare what rules bore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli.options import AsJson, Trust
from fedpace.cli.printing import err_console, out_console, print_json


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
    """Tell from a model's outputs what it was trained on: how much does it give away of its clients' data?

    RUN… are folders of finished runs.
    """
    from fedpace.experiments.attack import attack_membership, attack_table, chosen_adversaries

    by = chosen_adversaries(attack or ["logits", "loss"], shadows)
    runs = [
        attack_membership(folder, by=adversary, examples=examples, seed=seed, console=err_console)
        for folder in folders
        for adversary in by
    ]
    if as_json:
        print_json(runs)
        return
    out_console.print(attack_table(runs).rich())


def attack_byzantine(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare what rules bear: runs with attackers (--set attackers=0.2 --set attack=sign_flip) and without.

    RUN… are folders of finished runs.
    """
    from fedpace.experiments.byzantine import byzantine_tables, read_attacked

    runs = [read_attacked(folder) for folder in folders]
    if as_json:
        print_json(runs)
        return
    for table in byzantine_tables(runs):
        out_console.print(table.rich())
