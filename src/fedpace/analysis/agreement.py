"""Where clients agree: mean sign agreement of every layer in every round."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, nan
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedpace.analysis._style import blank, finish, heading, note, round_axis
from fedpace.core import ConfigError, RoundRecord


def mean_agreement(histogram: Sequence[int]) -> float:
    """Mean of |S| / N, from the number of coordinates at each |S| = 0..N, where S sums the signs of N clients.

    >>> mean_agreement([0, 3, 0, 1])  # N = 3: three coordinates at 1/3, one at 1
    0.5
    """
    counts = np.asarray(histogram, dtype=float)
    clients, total = len(counts) - 1, counts.sum()
    return float(counts @ np.arange(clients + 1) / (clients * total)) if clients * total else nan


def chance_agreement(clients: int) -> float:
    """Mean agreement of clients whose signs are independent coin tosses: what no common direction looks like.

    >>> chance_agreement(2), chance_agreement(3)
    (0.5, 0.5)
    """
    total = sum(comb(clients, k) * abs(2 * k - clients) for k in range(clients + 1))
    return float(total / (clients * 2**clients))


def layers_of(record: RoundRecord) -> dict[str, list[int]]:
    """The histogram of each layer; nothing in a round that measured none."""
    return {} if record.agreement is None else record.agreement.layers


def agreement_by_layer(
    records: Sequence[RoundRecord], path: str | Path | None = None, title: str | None = None
) -> Figure:
    """Heat map of mean agreement, layers down, rounds across; a round that measured none stays grey.

    Beside the colours stands the agreement that independent signs would have in the largest cohort.
    """
    by_round = {record.round: layers_of(record) for record in records}
    layers = list(dict.fromkeys(layer for found in by_round.values() for layer in found))
    if not layers:
        raise ConfigError("agreement by layer: no round of this run recorded it; expected a stage that measures signs")
    values = [[mean_agreement(found[name]) if name in found else nan for found in by_round.values()] for name in layers]
    chance = chance_agreement(max(len(histogram) - 1 for found in by_round.values() for histogram in found.values()))

    height = 1.4 + 0.26 * len(layers)
    figure = blank(height=height)
    axes = figure.add_subplot(facecolor="#EEEEEE")
    edges = (min(by_round) - 0.5, max(by_round) + 0.5, len(layers) - 0.5, -0.5)
    image = axes.imshow(values, cmap="viridis", extent=edges, aspect="auto", interpolation="nearest")
    # Colours start at chance, unless a layer is below it.
    image.set_clim(min(chance, np.nanmin(values)), max(chance, np.nanmax(values)))
    axes.set_yticks(range(len(layers)), layers, fontsize=8.5)
    axes.spines[:].set_visible(False)
    round_axis(axes)
    bar = figure.colorbar(image, label=f"mean agreement (chance: {chance:.2f})", pad=0.02, aspect=6 * height)
    bar.outline.set_visible(False)
    if np.isnan(values).any():
        note(axes, "grey: not measured")
    heading(figure, title)
    return finish(figure, path)
