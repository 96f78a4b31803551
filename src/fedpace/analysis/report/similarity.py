"""Which clients conflict: the cosine of every pair, round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, nan
from statistics import fmean
from typing import Any

import numpy as np

from fedpace.analysis._style import PALETTE
from fedpace.analysis.pairs import Snapshot, snapshots
from fedpace.analysis.report._html import (
    NUMBERS,
    Figure,
    Section,
    axis,
    grid,
    layout,
    number,
    panel,
    plot,
    scale,
    table,
)
from fedpace.analysis.runs import Methods, thinned

_COLOURS = (PALETTE[1], "#F7F7F7", PALETTE[5])  # light enough at both ends for dark numbers
_MEAN = "mean of all rounds"
_MOST = 100  # clients of the matrix of all rounds
_READABLE = 8  # clients up to which every cell shows its number


def pairs_of_clients(methods: Methods) -> Section:
    """A matrix of clients for each method, with one slider for all of them."""
    reading = (
        "Each cell is the cosine between what two clients sent: orange pairs pull the model in opposite directions, "
        "blue pairs in the same one. Move the slider to follow the rounds; the first seed of each method is shown."
    )
    found = {label: snapshots(runs[0].records) for label, runs in methods.items()}
    everything = [snapshot for shots in found.values() for snapshot in shots]
    if not everything:
        return Section("pairs", "Which clients conflict", reading, None)
    cells = sum(len(shot.clients) ** 2 for shot in everything) // len({shot.round for shot in everything})
    rounds = thinned(sorted({shot.round for shot in everything}), NUMBERS // cells)
    limit = _limit(everything)
    panels = [_panel(label, runs[0].seed, found[label], rounds, limit) for label, runs in methods.items()]
    bar = scale(_COLOURS, f"−{limit:g} conflict", f"+{limit:g} agreement")
    body = _slider(rounds) + bar + grid(panels, 250) + _most_in_conflict(methods, found)
    return Section("pairs", "Which clients conflict", reading, body)


def _limit(shots: Sequence[Snapshot]) -> float:
    """The cosine at the ends of the colours: few pairs are beyond it, and it has one decimal."""
    values = np.abs(np.concatenate([shot.cosines.ravel() for shot in shots]))
    values = values[np.isfinite(values)]
    return min(max(ceil(float(np.quantile(values, 0.98)) * 10), 1), 10) / 10 if values.size else 1.0


def _panel(label: str, seed: int, shots: Sequence[Snapshot], rounds: Sequence[int], limit: float) -> str:
    if not shots:
        return panel(label, f"seed {seed}", None)
    kept = set(rounds)
    frames = [_frame(_MEAN, _mean(shots))] + [_frame(str(shot.round), shot) for shot in shots if shot.round in kept]
    heat = {
        **frames[0]["data"][0],
        "zmin": -limit,
        "zmax": limit,
        "colorscale": [[i / (len(_COLOURS) - 1), colour] for i, colour in enumerate(_COLOURS)],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": "clients %{y} and %{x}: %{z:.3f}<extra></extra>",
    }
    clients = len(frames[0]["data"][0]["x"])
    if clients <= _READABLE:
        heat |= {"texttemplate": "%{z:.2f}", "textfont": {"color": "#1A1A1A"}}
    square = {"type": "category", "showgrid": False, "ticks": ""}
    axes = {"xaxis": axis("client", **square), "yaxis": axis("client", autorange="reversed", **square)}
    figure: Figure = {"data": [heat], "layout": layout(**axes), "frames": frames}
    return panel(label, f"seed {seed}", plot(figure, 270, f"Cosine between every two clients, {label}"))


def _frame(name: str, shot: Snapshot) -> dict[str, Any]:
    names = [str(client) for client in shot.clients]
    values = [[number(value, 3) for value in row] for row in shot.cosines]
    return {"name": name, "data": [{"type": "heatmap", "x": names, "y": names, "z": values}]}


def _mean(shots: Sequence[Snapshot]) -> Snapshot:
    """The mean of each pair over the rounds in which both took part; of many clients, of those that were there most."""
    often = Counter(client for shot in shots for client in shot.clients).most_common(_MOST)
    clients = sorted(client for client, _ in often)
    place = {client: index for index, client in enumerate(clients)}
    total, count = np.zeros((2, len(clients), len(clients)))
    for shot in shots:
        shown = [at for at, client in enumerate(shot.clients) if client in place]
        rows = np.ix_(*[[place[shot.clients[at]] for at in shown]] * 2)
        cosines = shot.cosines[np.ix_(shown, shown)]
        total[rows] += np.nan_to_num(cosines)
        count[rows] += np.isfinite(cosines)
    return Snapshot(-1, clients, np.divide(total, count, out=np.full_like(total, nan), where=count > 0))


def _slider(rounds: Sequence[int]) -> str:
    steps = [_MEAN, *map(str, rounds)]
    options = "".join(f"<option>{step}</option>" for step in steps)
    return (
        '<p class="slider"><button type="button" aria-label="play">▶</button>'
        f'<input type="range" min="0" max="{len(rounds)}" value="0" aria-label="round">'
        f"<output>{_MEAN}</output><select hidden>{options}</select></p>"
    )


def _most_in_conflict(methods: Methods, found: dict[str, list[Snapshot]]) -> str:
    rows = [[label, *_worst_pair(found[label])] for label in methods if found[label]]
    header = ["method", "clients", "mean cosine", "rounds below 0", "lowest cosine"]
    return table(header, rows, 2, "The pair most in conflict", "The pair with the lowest mean over the rounds.")


def _worst_pair(shots: Sequence[Snapshot]) -> list[str]:
    pairs: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for shot in shots:
        for i, j in zip(*np.triu_indices(len(shot.clients), 1), strict=True):
            if np.isfinite(shot.cosines[i, j]):
                pair = (shot.clients[i], shot.clients[j])
                pairs.setdefault(pair, []).append((float(shot.cosines[i, j]), shot.round))
    if not pairs:
        return ["–"] * 4
    (one, other), values = min(pairs.items(), key=lambda item: fmean(value for value, _ in item[1]))
    mean, below = fmean(value for value, _ in values), sum(value < 0 for value, _ in values)
    lowest, when = min(values)
    return [f"{one} and {other}", signed(mean), f"{below} of {len(values)}", f"{signed(lowest)} in round {when}"]


def signed(value: float) -> str:
    """A cosine with its sign.

    >>> signed(-0.25)
    '−0.250'
    """
    return f"{value:+.3f}".replace("-", "−")
