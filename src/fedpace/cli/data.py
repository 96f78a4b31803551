"""Look at data before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli.options import Alpha, AsJson, Clients, Partition, given_partition, given_settings
from fedpace.cli.printing import out_console, print_files, print_json
from fedpace.core import slug


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
    """Draw how many examples of each class every client holds.

    SOURCE is a name ('fedpace list data'), or the path of your data.
    """
    from fedpace.data import counts_table, save_counts_figure
    from fedpace.experiments import load_config
    from fedpace.experiments.run import federate

    given = given_settings(
        [_below_data(text) for text in set_ or []], source, None, None, given_partition(partition, alpha, clients), seed
    )
    federation = federate(load_config("fedavg", given))
    if as_json:
        counts = dict(zip(federation.client_names, federation.counts().tolist(), strict=True))
        print_json({"name": federation.name, "classes": federation.classes, "counts": counts})
        return
    out_console.print(counts_table(federation))
    path = out or Path("runs") / f"{slug(federation.name)}.png"
    save_counts_figure(federation, path)
    print_files(picture=[path])


def _below_data(assignment: str) -> str:
    """A key of the config; without its tables it is ``size`` or a parameter of the partition."""
    if assignment.startswith("data."):
        return assignment
    return f"data.{'' if assignment.startswith('size=') else 'partition.'}{assignment}"
