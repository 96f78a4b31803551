"""Pictures of who has what: examples per client and class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from fedpace.core import DataError
from fedpace.data.federation import Federation

BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("blue", "cyan", "green", "yellow", "red")
MOST_ROWS = 30
MOST_NUMBERED_CLASSES = 12
MOST_BUBBLES = 40
FORMATS = (".pdf", ".png", ".svg")


def counts_table(federation: Federation) -> Table:
    """A terminal picture: a row per client, a block per class whose height (and colour) is the number of examples.

    With many classes the numbers are left out; of many clients, evenly spaced ones are shown.
    """
    counts = federation.counts()
    sizes = counts.sum(axis=1)
    shown = np.unique(np.linspace(0, len(federation) - 1, MOST_ROWS).round().astype(int))
    table = Table(
        title=federation.name,
        caption=f"{len(shown)} of {len(federation)} clients; examples per client {sizes.min()} to {sizes.max()}",
    )
    numbered = len(federation.classes) <= MOST_NUMBERED_CLASSES
    table.add_column("client")
    table.add_column("examples", justify="right")
    for title in federation.classes if numbered else (f"{len(federation.classes)} classes",):
        table.add_column(title, justify="right", overflow="fold")
    for client in shown:
        blocks = [_block(count, counts.max()) for count in counts[client]]
        cells = [_numbered(*pair) for pair in zip(counts[client], blocks, strict=True)] if numbered else [_row(blocks)]
        table.add_row(federation.client_names[client], str(sizes[client]), *cells)
    return table


def _block(count: int, most: int) -> Text:
    if count == 0:
        return Text("·", style="dim")
    share = count / (most + 1)
    return Text(BLOCKS[int(share * len(BLOCKS))], style=COLOURS[int(share * len(COLOURS))])


def _numbered(count: int, block: Text) -> Text:
    return block if count == 0 else Text(f"{count} ").append_text(block)


def _row(blocks: list[Text]) -> Text:
    return Text().join(blocks)


def save_counts_figure(federation: Federation, path: str | Path) -> None:
    """Save a figure (png, svg or pdf): clients across, classes up; bubbles by area, or a heat map of many clients."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, found '{path.suffix}'")
    counts = federation.counts().T
    classes, clients = counts.shape
    figure = Figure(figsize=(min(4 + 0.3 * clients, 12), min(2 + 0.3 * classes, 12)), layout="constrained")
    axes = figure.add_subplot(title=federation.name, xlabel="client", ylabel="class")
    if clients <= MOST_BUBBLES:
        y, x = np.nonzero(counts)
        axes.scatter(x, y, s=250 * counts[y, x] / counts.max(), color="tab:blue", alpha=0.7)
        axes.set_xticks(range(clients), federation.client_names, rotation=90 if clients > MOST_NUMBERED_CLASSES else 0)
        axes.margins(0.1)
    else:
        figure.colorbar(axes.imshow(counts, aspect="auto", origin="lower", cmap="viridis"), label="examples")
    if classes <= MOST_ROWS:
        axes.set_yticks(range(classes), federation.classes)
    figure.savefig(path, dpi=150)
