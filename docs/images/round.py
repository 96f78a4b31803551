"""Draws docs/images/round.svg, the picture of one round: ``python docs/images/round.py``."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedpace.analysis import save

PAPER, INK, MUTED = "#FCFCFA", "#222222", "#5F6368"  # a light card of its own: readable on a dark page, too
SERVER, QUESTION, POSTMAN, REPORT = "#0072B2", "#D55E00", "#6B7280", "#009E73"
SIDES = {"engine": (1, 25), "Flower": (75, 99)}  # left and right edge of each postman
MIDDLE = (33, 67)
PROBES, WORK = 58, 42.5  # heights of the two kinds of questions


def box(axes: Axes, left: float, bottom: float, right: float, top: float, colour: str, strength: float = 0.08) -> None:
    """A rounded box, filled with a little of its colour."""
    shape = "round,pad=0,rounding_size=1.2"
    for fill, edge, alpha, width in ((colour, "none", strength, 0.0), ("none", colour, 1.0, 1.2)):
        axes.add_patch(
            FancyBboxPatch(
                (left, bottom), right - left, top - bottom, shape, fc=fill, ec=edge, alpha=alpha, lw=width, zorder=1
            )
        )


def text(axes: Axes, x: float, y: float, words: str, colour: str = INK, size: float = 10.5, **more: Any) -> None:
    """Words, centred."""
    axes.text(x, y, words, color=colour, size=size, ha="center", va="center", zorder=3, **more)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK, **more: Any) -> None:
    """An arrow."""
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11}
    axes.annotate("", end, start, arrowprops={**style, **more}, zorder=2)


def asked(axes: Axes, y: float, question: str, answer: str) -> None:
    """A question to either postman, and the answer on its way back."""
    (_, near), (far, _) = SIDES.values()
    for start, end in ((MIDDLE[0] + 2, near), (MIDDLE[1] - 2, far)):
        x = (MIDDLE[0] + near) / 2 if end == near else (MIDDLE[1] + far) / 2
        arrow(axes, (start, y + 1.3), (end, y + 1.3), QUESTION)
        arrow(axes, (end, y - 1.3), (start, y - 1.3), QUESTION)
        text(axes, x, y + 3.1, "ask", QUESTION, 9)
        text(axes, x, y - 3.1, "answer", QUESTION, 9)
    box(axes, MIDDLE[0] + 2, y - 4, MIDDLE[1] - 2, y + 4, QUESTION, 0.14)
    text(axes, 50, y + 1.6, question, weight="bold")
    text(axes, 50, y - 1.6, answer, MUTED, 9.5)


def draw() -> Figure:
    """The whole picture."""
    figure = Figure(figsize=(10, 8.2), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 100), ylim=(0, 82))
    axes.axis("off")
    postmen(axes)
    conversation(axes)
    return figure


def postmen(axes: Axes) -> None:
    """Who carries questions and answers."""
    about = {
        "engine": (
            "engine",
            "Training",
            "a Turn for each\nclient and point",
            "a Turn\nfor each client",
            "workers: this process,\nothers, or Flower's nodes",
        ),
        "Flower": (
            "or: Flower strategy",
            "ServerStrategy",
            "a message for each\nclient, with all points",
            "a message\nfor each client",
            "ClientApps\nof any Flower app",
        ),
    }
    for side, (left, right) in SIDES.items():
        x, (title, name, probes, work, whom) = (left + right) / 2, about[side]
        box(axes, left, 23, right, 77, POSTMAN)
        text(axes, x, 73.6, title, weight="bold", size=12)
        text(axes, x, 70.4, name, MUTED, 9.5, family="monospace")
        for y, words in ((PROBES, probes), (WORK, work)):
            box(axes, left + 2, y - 4, right - 2, y + 4, POSTMAN, 0.12)
            text(axes, x, y, words, size=10, linespacing=1.4)
        text(axes, x, 29.5, whom, MUTED, 9.5, linespacing=1.5)
        arrow(axes, (x, WORK - 4), (x, 33), POSTMAN, arrowstyle="<|-|>")
        arrow(axes, (right if side == "engine" else left, 72), (36 if side == "engine" else 64, 72))


def conversation(axes: Axes) -> None:
    """What the server asks, and what it makes of the answers."""
    left, right = MIDDLE
    text(axes, 50, 79.6, "Round", SERVER, 13, weight="bold")
    box(axes, left - 1, 23, right + 1, 77, SERVER, 0.05)
    box(axes, 36, 69.5, 64, 74.5, SERVER, 0.14)
    text(axes, 50, 72, "cohort of this round")

    arrow(axes, (50, 69.5), (50, 65.9))
    text(axes, 50, 64.4, "search: as often as it asks, or not at all", SERVER, 10)
    asked(axes, PROBES, "AskProbes", "gradients near θ, on one batch")

    arrow(axes, (50, 54), (50, 50.4))
    text(axes, 50, 48.9, "exchange: one or more", SERVER, 10)
    asked(axes, WORK, "AskUpdates  or  AskSums", "updates or gradients; or their sums")
    arrow(axes, (50, 38.5), (50, 35))
    steps = ("guard", "rule", "optimizer", "pruning")
    edges = ((34, 40.4), (42.4, 47.4), (49.4, 57.4), (59.4, 66))
    for step, (start, end) in zip(steps, edges, strict=True):
        box(axes, start, 30.5, end, 35, SERVER, 0.18)
        text(axes, (start + end) / 2, 32.7, step, size=10)
    for (_, end), (start, _) in pairwise(edges):
        arrow(axes, (end, 32.7), (start, 32.7), mutation_scale=8)
    text(axes, 50, 27.2, "θ takes one step per exchange", MUTED, 9.5)

    arrow(axes, (50, 23), (50, 19.5), REPORT)
    box(axes, left - 1, 11.5, right + 1, 19.5, REPORT, 0.14)
    text(axes, 50, 17, "RoundReport", weight="bold")
    text(axes, 50, 13.8, "who, conflict, bytes; typed", MUTED, 9.5)

    arrow(axes, (32, 15.5), (25, 15.5), REPORT)
    box(axes, 1, 11.5, 25, 19.5, REPORT, 0.14)
    text(axes, 13, 17, "RoundRecord", weight="bold")
    text(axes, 13, 13.8, "+ metrics and seconds", MUTED, 9.5)
    arrow(axes, (13, 11.5), (13, 8.5), REPORT)
    box(axes, 1, 1.5, 67.9, 8.5, REPORT)
    text(axes, 34.5, 6.2, "listeners: first the recorder, then progress bars and trackers")
    text(axes, 34.5, 3.4, "rounds.jsonl, checkpoint, model.safetensors", MUTED, 9.5, family="monospace")

    arrow(axes, (68, 15.5), (75, 15.5), REPORT)
    box(axes, 75, 11.5, 99, 19.5, REPORT, 0.14)
    text(axes, 87, 17, "Flower's metrics", weight="bold")
    text(axes, 87, 13.8, "of the app that asked", MUTED, 9.5)


if __name__ == "__main__":
    save(draw(), Path(__file__).with_suffix(".svg"))
