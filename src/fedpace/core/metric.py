"""Figures by which models are judged: their names, their direction, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan


@dataclass(frozen=True)
class Metric:
    """A figure of a model. ``percent`` are shares, which tables show times 100; ``rises`` says that more is better.

    >>> ACCURACY.label, ACCURACY.text(0.5), Metric("MAE", rises=False).text(0.5)
    ('accuracy (%)', '50.00%', '0.500')
    """

    name: str
    rises: bool = True
    percent: bool = False

    @property
    def label(self) -> str:
        """The name with its unit, as tables and axes write it."""
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def title(self) -> str:
        """The name at the beginning of a line."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def unit(self) -> str:
        """The unit of differences, as tables write it."""
        return " (points)" if self.percent else ""

    def text(self, value: float) -> str:
        """A value, as a sentence writes it."""
        return f"{self.number(value)}%" if self.percent else self.number(value)

    def number(self, value: float, sign: str = "") -> str:
        """A value without its unit, as a column writes it; ``sign`` as in format strings."""
        return f"{value * 100:{sign}.2f}" if self.percent else f"{value:{sign}.3f}"

    def best(self, values: Iterable[float]) -> float:
        """The best of some values; NaN of none."""
        return max(values, default=nan) if self.rises else min(values, default=nan)


ACCURACY = Metric("accuracy", percent=True)
"""What classifiers are judged by."""
