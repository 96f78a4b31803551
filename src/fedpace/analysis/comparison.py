"""Methods side by side over several seeds: mean ± std, and the paired difference to the first method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, isnan, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from rich.table import Table

from fedpace.analysis._fairness import Fairness, mean_fairness
from fedpace.analysis._tables import Side, TextTable
from fedpace.analysis.interval import Interval, anytime_interval, corrected_level, paired_interval
from fedpace.analysis.summary import Summary
from fedpace.core import ACCURACY, ConfigError, RoundRecord, did_you_mean
from fedpace.core import Metric as Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metric = Literal["final", "best", "last10", "auc"]

_TITLES = {
    "final": "Final {}",
    "best": "Best {}",
    "last10": "Mean {} of the last 10 measured rounds",
    "auc": "Area under the {} curve",
}


@dataclass(frozen=True)
class ComparisonRow:
    """One method. Values are as they were measured: accuracies are fractions.

    Attributes:
        method: Its name.
        values: Seed → metric, without the seeds that measured nothing.
        mean: Mean over seeds.
        std: Sample standard deviation over seeds (n - 1); NaN with fewer than two.
        pairs: Number of seeds shared with the first method.
        difference: Paired difference to the first method; None for the first method itself.
        stars: 0 where its interval contains 0, 1 where not, 2 where not even after correction for several methods.
        fairness: How evenly clients fare, mean over seeds; NaN unless histories show clients with tests of their own.
        time: Virtual time at the end, mean over seeds; NaN where clients have no speeds.

    """

    method: str
    values: dict[int, float]
    mean: float
    std: float
    pairs: int
    difference: Interval | None
    stars: int
    fairness: Fairness
    time: float


class Comparison:
    """A comparison table: one row per method, the first method being the reference.

    One star: the interval excludes 0. Two stars: it still does at a level corrected for the number of methods; with
    twenty methods, expect one false single star.

    Args:
        summaries: Method → seed → summary.
        records: Method → seed → history; with it, :meth:`plot` draws curves instead of points.
        metric: Which figure of a run to compare.
        level: Confidence level of the intervals.
        sequential: Pairs were added until the differences were decided: intervals are confidence sequences, which
            hold however often one looked, at a level that all of them have together.
        headline: What the task measures; tables and plots show it as it wants to be shown.

    """

    def __init__(
        self,
        summaries: Mapping[str, Mapping[int, Summary]],
        records: Mapping[str, Mapping[int, Sequence[RoundRecord]]] | None = None,
        metric: Metric = "final",
        level: float = 0.95,
        *,
        sequential: bool = False,
        headline: Headline = ACCURACY,
    ) -> None:
        if not summaries:
            raise ConfigError("comparison: expected at least one method, found none")
        if metric not in get_args(Metric):
            raise ConfigError(f"unknown metric '{metric}'; {did_you_mean(metric, get_args(Metric))}")
        self.metric, self.level, self.sequential, self.headline = metric, level, sequential, headline
        self._corrected = corrected_level(level, len(summaries) - 1)
        self.reference = next(iter(summaries))
        self._records = records
        self.rows = [self._row(method, summaries) for method in summaries]

    def _row(self, method: str, summaries: Mapping[str, Mapping[int, Summary]]) -> ComparisonRow:
        values, reference = self._measured(summaries[method]), self._measured(summaries[self.reference])
        common = [seed for seed in values if seed in reference]
        found = list(values.values())
        pairs = [values[seed] - reference[seed] for seed in common]
        return ComparisonRow(
            method,
            values,
            mean=float(np.mean(found)) if found else nan,
            std=float(np.std(found, ddof=1)) if len(found) > 1 else nan,
            pairs=len(common),
            difference=None if method == self.reference else self._interval(pairs),
            stars=0 if method == self.reference else self._stars(pairs),
            fairness=mean_fairness((self._records or {}).get(method, {}).values(), self.headline),
            time=fmean(summary.time for summary in summaries[method].values()) if summaries[method] else nan,
        )

    def _interval(self, pairs: Sequence[float]) -> Interval:
        return anytime_interval(pairs, self._corrected) if self.sequential else paired_interval(pairs, self.level)

    def _stars(self, pairs: Sequence[float]) -> int:
        """One for an interval that excludes 0, one more if it does so at the level for several methods, too."""
        several = self._corrected > self.level and not self.sequential
        corrected = several and paired_interval(pairs, self._corrected).excludes_zero
        return self._interval(pairs).excludes_zero + corrected

    def _measured(self, by_seed: Mapping[int, Summary]) -> dict[int, float]:
        values = {seed: float(getattr(summary, self.metric)) for seed, summary in sorted(by_seed.items())}
        return {seed: value for seed, value in values.items() if not isnan(value)}

    @property
    def title(self) -> str:
        """The metric and the number of seeds."""
        counts = sorted({len(row.values) for row in self.rows})
        seeds = "–".join(str(count) for count in (counts if len(counts) < 3 else (counts[0], counts[-1])))
        return f"{_TITLES[self.metric].format(self.headline.name)}, {seeds} seed{'' if counts == [1] else 's'}"

    @property
    def caption(self) -> str:
        """What the columns mean."""
        spread = "± is the standard deviation over seeds"
        if not self.headline.rises:
            spread = f"less {self.headline.name} is better; {spread}"
        if self._has_fairness:
            spread += "; spread is that over clients and worst tenth the mean of the worst-off, after the last round"
        if all(row.difference is None for row in self.rows):
            return f"{spread}."
        if all(row.difference is None or isnan(row.difference.low) for row in self.rows):
            return f"{spread}; a difference has no interval with fewer than two common seeds."
        if self.sequential:
            return (
                f"{spread}; [ ] is a confidence sequence of the paired difference: all of them hold together at "
                f"{self.level * 100:g} %, however often one looked; * where it excludes 0."
            )
        corrected = (
            f", ** where it still does at {self._corrected * 100:.4g} %, for {len(self.rows) - 1} methods together"
        )
        return (
            f"{spread}; [ ] is the {self.level * 100:g} % paired t interval of the difference over common seeds; "
            f"* where it excludes 0{corrected if len(self.rows) > 2 else ''}."
        )

    def _text(self) -> TextTable:
        columns: dict[str, tuple[Side, Sequence[str]]] = {
            "method": ("left", [row.method for row in self.rows]),
            self.headline.label: ("right", [self._number(row.mean, row.std) for row in self.rows]),
            f"difference to {self.reference}{self.headline.unit}": ("left", [self._points(row) for row in self.rows]),
        }
        if self._has_fairness:
            columns["spread"] = ("right", [self._number(row.fairness.spread) for row in self.rows])
            columns["worst tenth"] = ("right", [self._number(row.fairness.worst_decile) for row in self.rows])
        if not all(isnan(row.time) for row in self.rows):
            columns["virtual time"] = ("right", ["–" if isnan(row.time) else f"{row.time:.4g}" for row in self.rows])
        columns["seeds"] = ("right", [str(len(row.values)) for row in self.rows])
        return TextTable.of_columns(self.title, columns, self.caption)

    @property
    def _has_fairness(self) -> bool:
        return any(not isnan(row.fairness.spread) for row in self.rows)

    def _number(self, mean: float, std: float = nan) -> str:
        if isnan(mean):
            return "–"
        return self.headline.number(mean) + ("" if isnan(std) else f" ± {self.headline.number(std)}")

    def _points(self, row: ComparisonRow) -> str:
        difference = row.difference
        if difference is None or isnan(difference.mean):
            return "–"
        if not isfinite(difference.low):
            return self._signed(difference.mean)
        star = f" {'*' * row.stars}" if row.stars else ""
        return (
            f"{self._signed(difference.mean)} [{self._signed(difference.low)}, {self._signed(difference.high)}]{star}"
        )

    def _signed(self, difference: float) -> str:
        rounded = round(difference, 4 if self.headline.percent else 3) + 0.0  # + 0.0 turns -0.0 into 0.0
        return self.headline.number(rounded, "+").replace("-", "−")

    def table(self) -> Table:
        """The table for a terminal; rows whose interval excludes 0 are bold."""
        rows = enumerate(self.rows)
        return self._text().rich(bold=[i for i, row in rows if row.difference and row.difference.excludes_zero])

    def __str__(self) -> str:
        return self._text().plain()

    def _repr_html_(self) -> str:
        return self._text().html()

    def to_markdown(self) -> str:
        """The table as a Markdown pipe table."""
        return self._text().markdown()

    def to_json(self) -> dict[str, Any]:
        """Plain data, ready for ``json.dumps``: values as measured, and null for what is unknown."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            row["values"] = {str(seed): value for seed, value in row["values"].items()}
        head = {
            "metric": self.metric,
            "headline": asdict(self.headline),
            "level": self.level,
            "reference": self.reference,
        }
        return {**head, "rows": [_without_nan(row) for row in rows]}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Curves if histories were given, otherwise every seed's value as a point; saved if ``path`` is."""
        from fedpace.analysis.figures import metric_curves, seed_points  # here, because matplotlib is slow to import

        if self._records is not None:
            curves = {method: list(by_seed.values()) for method, by_seed in self._records.items()}
            return metric_curves(curves, path, metric=self.headline)
        return seed_points({row.method: row.values for row in self.rows}, path, title=self.title, metric=self.headline)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value
