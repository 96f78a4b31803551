"""Pictures of who has what: examples per client and class, as numbers and as images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fedpace.core import DataError, for_figure, for_terminal, writing
from fedpace.data._many import evenly
from fedpace.data.examples import Indices
from fedpace.data.federation import Federation

BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("blue", "cyan", "green", "yellow", "red")
MOST_ROWS = 30
MOST_COLUMNS = 4
BAR = 8  # columns of a full bar
MOST_NUMBERED_CLASSES = 12
MOST_BUBBLES = 40
MOST_LISTED = 1000
MOST_DRAWN = 2000  # clients of a heat map: it is not wider in pixels
LONGEST_LABEL = 24
MOST_PICTURES = 10  # clients, and classes
FORMATS = (".pdf", ".png", ".svg")


def counts_table(federation: Federation) -> Table:
    """A terminal picture of the number of examples by class and client.

    Few clients stand side by side, with a bar and a number per class; many stand below one another, with one block
    per class (of very many, evenly spaced ones are shown).
    """
    sizes = federation.sizes()
    caption = f"{len(federation)} clients with {sizes.min()} to {sizes.max()} examples"
    if len(federation) <= MOST_COLUMNS:
        return _bars(federation, federation.counts(), caption)
    return _blocks(federation, caption)


def counts_of(federation: Federation, clients: Indices) -> Indices:
    """Training examples of some clients, clients × classes."""
    return np.stack([federation.clients[client].class_counts() for client in clients])


def counts_json(federation: Federation) -> dict[str, Any]:
    """The same for JSON: the counts of each client by its name; of more than 1,000 clients, of evenly spaced ones."""
    shown, sizes = evenly(len(federation), MOST_LISTED), federation.sizes()
    names = [federation.client_names[client] for client in shown]
    return {
        "name": federation.name,
        "classes": federation.classes,
        "clients": len(federation),
        "examples": {"all": int(sizes.sum()), "least": int(sizes.min()), "most": int(sizes.max())},
        "counts": dict(zip(names, counts_of(federation, shown).tolist(), strict=True)),
    }


def _bars(federation: Federation, counts: Indices, caption: str) -> Table:
    table = Table(title=for_terminal(federation.name), caption=caption, show_footer=True)
    table.add_column("class", footer="all")
    for name, size in zip(federation.client_names, counts.sum(axis=1), strict=True):
        table.add_column(f"client {name}" if name.isdecimal() else for_terminal(name), footer=f"{size:>5}")
    for label, row in zip(_kinds(federation), counts.T, strict=True):
        bars = (Text(f"{count:>5} ").append_text(_bar(count, counts.max())) for count in row)
        table.add_row(for_terminal(label), *bars)
    return table


def _bar(count: int, most: int) -> Text:
    eighths = max(round(count / most * BAR * 8), 1) if count else 0
    return Text("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style=_colour(count, most))


def _kinds(federation: Federation) -> tuple[str, ...]:
    """What is counted: examples of each class, or where there are no classes examples."""
    return federation.classes or ("examples",)


def _blocks(federation: Federation, caption: str) -> Table:
    shown = evenly(len(federation), MOST_ROWS)
    most = max(counts.max() for counts in federation.counted())
    if len(shown) < len(federation):
        caption += f"; {len(shown)} of them shown"
    table = Table(title=for_terminal(federation.name), caption=caption)
    table.add_column("client")
    table.add_column("examples", justify="right")
    kinds = federation.classes
    title = f"{len(kinds)} classes, {kinds[0]} to {kinds[-1]}" if kinds else "beside the largest"
    table.add_column(for_terminal(title))
    for client, counts in zip(shown, counts_of(federation, shown), strict=True):
        blocks = [_block(count, most) for count in counts]
        table.add_row(for_terminal(federation.client_names[client]), str(counts.sum()), Text().join(blocks))
    return table


def _block(count: int, most: int) -> Text:
    if count == 0:
        return Text("·", style="dim")
    return Text(BLOCKS[int(count / (most + 1) * len(BLOCKS))], style=_colour(count, most))


def _colour(count: int, most: int) -> str:
    return COLOURS[int(count / (most + 1) * len(COLOURS))]


def save_counts_figure(federation: Federation, path: str | Path) -> None:
    """Save a figure (png, svg or pdf): clients across, classes up; bubbles by area, or a heat map of many clients.

    Of more clients than the figure has columns, evenly spaced ones are drawn.
    """
    from matplotlib.figure import Figure  # here, because it is slow to import

    path = _picture_path(path)
    clients, shown = len(federation), evenly(len(federation), MOST_DRAWN)
    counts = counts_of(federation, shown).T
    classes = len(counts)
    figure = Figure(figsize=(min(4 + 0.3 * clients, 12), min(2 + 0.3 * classes, 12)), layout="constrained")
    label = "client" if len(shown) == clients else f"client ({len(shown)} of {clients} shown)"
    axes = figure.add_subplot(title=for_figure(federation.name), xlabel=label, ylabel="class")
    if clients <= MOST_BUBBLES:
        y, x = np.nonzero(counts)
        axes.scatter(x, y, s=250 * counts[y, x] / counts.max(), color="tab:blue", alpha=0.7)
        names = list(map(_label, federation.client_names))
        axes.set_xticks(range(clients), names, rotation=90 if clients > MOST_NUMBERED_CLASSES else 0)
        axes.margins(0.1)
    else:
        edges = (-0.5, clients - 0.5, -0.5, classes - 0.5)  # the axis has the clients' numbers
        drawn = axes.imshow(counts, aspect="auto", origin="lower", cmap="viridis", extent=edges)
        figure.colorbar(drawn, label="examples")
    if classes <= MOST_ROWS:
        axes.set_yticks(range(classes), list(map(_label, _kinds(federation))))
    with writing(path):
        figure.savefig(path, dpi=150)


def save_examples_figure(federation: Federation, path: str | Path) -> None:
    """Save a figure (png, svg or pdf) of images as a model sees them: clients and test set down, classes across.

    Shown is the first image of a class that a client holds (of very many clients and classes, evenly spaced ones).
    """
    from matplotlib.figure import Figure

    path = _picture_path(path)
    inputs, shape = federation.test.pool.inputs, federation.shape
    if isinstance(inputs, Mapping) or inputs.dtype != np.uint8 or isinstance(shape, dict) or shape[0] not in (1, 3):
        raise DataError(f"'{federation.name}': expected images with 1 or 3 channels, found shape {federation.shape}")
    clients, classes = evenly(len(federation), MOST_PICTURES), evenly(len(federation.classes), MOST_PICTURES)
    shards = [*(federation.clients[client] for client in clients), federation.test]
    names = [*(federation.client_names[client] for client in clients), "test"]
    figure = Figure(figsize=(1 + 0.6 * len(classes), 0.5 + 0.6 * len(shards)), layout="constrained")
    figure.suptitle(for_figure(federation.name))
    grid = figure.subplots(len(shards), len(classes), squeeze=False)
    for row, shard, name in zip(grid, shards, names, strict=True):
        row[0].set_ylabel(_label(name), rotation=0, ha="right", va="center")
        for axes, label in zip(row, classes, strict=True):
            axes.set(xticks=[], yticks=[], frame_on=False)
            found = np.flatnonzero(shard.labels == label)[:1]
            if len(found):
                axes.imshow(shard.arrays(found)[0][0].squeeze(), cmap="gray", vmin=0, vmax=255)
    for axes, label in zip(grid[-1], classes, strict=True):
        axes.set_xlabel(_label(federation.classes[label]))
    with writing(path):
        figure.savefig(path, dpi=150)


def _label(name: str) -> str:
    """The name of a client or a class, which leaves room for the picture."""
    return for_figure(name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…")


def _picture_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, found '{path.suffix}'")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path
