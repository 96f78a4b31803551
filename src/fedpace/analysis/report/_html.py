"""Pieces of the page: sections, panels, plots, colour scales."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import isfinite
from textwrap import wrap
from typing import Any

from fedpace.analysis._style import line_style
from fedpace.analysis._tables import Side, TextTable
from fedpace.core import Metric, for_html

Figure = dict[str, Any]
"""What plotly.js draws: data and layout, as plain values. Tests check it against plotly's schema."""

NUMBERS = 150_000
"""Numbers that one section's pictures may hold: about a megabyte. Beyond it, rounds are left out evenly."""

_CLEAR, _FAINT = "rgba(0,0,0,0)", "rgba(128,128,128,0.22)"
_PLOTLY_DASHES = {"-": "solid", "--": "dash", ":": "dot"}


@dataclass(frozen=True)
class Section:
    """A heading, one sentence that says how to read what follows, and the content; ``None``: not measured."""

    name: str
    title: str
    reading: str
    body: str | None

    def html(self) -> str:
        """The section element."""
        body = self.body or '<p class="missing">Not measured in these runs.</p>'
        reading = f'<p class="reading">{for_html(self.reading)}</p>'
        return f'<section id="{self.name}"><h2>{for_html(self.title)}</h2>{reading}{body}</section>'


def text(label: str, width: int = 26) -> str:
    """A label as plotly shows it: its own mark-up has no effect, and a long one is broken into lines.

    >>> text("a <b>")
    'a &lt;b&gt;'
    """
    return "<br>".join(map(for_html, wrap(label, width)))


def number(value: float, digits: int = 4) -> float | None:
    """Rounded, because a picture shows no more; null if it is not finite, because JSON knows no NaN."""
    return round(float(value), digits) if isfinite(value) else None


def line(index: int, width: float = 2) -> dict[str, Any]:
    """The ``index``-th line, in the colours and dashes of our figures."""
    colour, dashes = line_style(index)
    return {"color": colour, "dash": _PLOTLY_DASHES[dashes], "width": width}


def layout(**given: Any) -> dict[str, Any]:
    """A layout in our style; the page sets the colour of its text for a light or a dark screen."""
    font = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12}
    margin = {"l": 8, "r": 8, "t": 8, "b": 8}
    return {"paper_bgcolor": _CLEAR, "plot_bgcolor": _CLEAR, "font": font, "margin": margin, **given}


def axis(title: str = "", **given: Any) -> dict[str, Any]:
    """An axis with a faint grid that makes room for its own labels."""
    named = {"title": {"text": for_html(title), "standoff": 8}} if title else {}
    return {**named, "gridcolor": _FAINT, "zeroline": False, "automargin": True, **given}


def round_axis(rounds: Sequence[int], **given: Any) -> dict[str, Any]:
    """The x axis counts rounds: whole numbers, about ten of them."""
    first, last = min(rounds), max(rounds)
    step = next(size * 10**power for power in count() for size in (1, 2, 5) if last - first <= size * 10 ** (power + 1))
    spike = {"spikecolor": "#888888", "spikethickness": 1, "spikedash": "solid"}  # the line under the mouse
    return axis("round", range=[first - 0.5, last + 0.5], tick0=0, dtick=step, **spike, **given)


def value_format(metric: Metric, digits: int = 2) -> str:
    """How plotly writes a value of a metric.

    >>> value_format(Metric("F1", percent=True), 1), value_format(Metric("MAE", rises=False))
    ('.1%', '.4~g')
    """
    return f".{digits}%" if metric.percent else ".4~g"


def plot(figure: Figure, height: int, says: str) -> str:
    """A place that the page's script fills with a picture; ``says`` is its description for those who cannot see it."""
    # A label may hold "</script>": without "<" nothing in the JSON can end the element.
    data = json.dumps(figure, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    described = f'role="img" aria-label="{for_html(says)}"'
    script = f'<script type="application/json">{data}</script>'
    return f'<div class="plot" style="height:{height}px" {described}>{script}</div>'


def panel(label: str, aside: str, body: str | None, note: str = "") -> str:
    """One method's picture with its name above and a note below."""
    head = f"<figcaption>{for_html(label)} <small>{for_html(aside)}</small></figcaption>"
    below = f'<p class="note">{for_html(note)}</p>' if note else ""
    return f'<figure class="panel">{head}{body or _MISSING}{below}</figure>'


_MISSING = '<p class="missing">Not measured.</p>'


def grid(panels: Sequence[str], width: int) -> str:
    """Panels side by side, as many as fit with at least ``width`` pixels each."""
    return f'<div class="grid" style="--panel:{width}px">{"".join(panels)}</div>'


def scale(colours: Sequence[str], low: str, high: str, aside: str = "") -> str:
    """What the colours of all panels of a section mean."""
    bar = f'<i style="background:linear-gradient(90deg,{",".join(colours)})"></i>'
    more = f"<em>{for_html(aside)}</em>" if aside else ""
    return f'<p class="scale"><span>{for_html(low)}</span>{bar}<span>{for_html(high)}</span>{more}</p>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int, title: str = "", caption: str = "") -> str:
    """A table whose first ``words`` columns are text and whose other columns are numbers."""
    sides: list[Side] = ["left" if index < words else "right" for index in range(len(header))]
    return scrolling(TextTable(title, header, sides, rows, caption).html())


def scrolling(content: str) -> str:
    """A table that is wider than a small screen scrolls; the page does not."""
    return f'<div class="scroll">{content}</div>'
