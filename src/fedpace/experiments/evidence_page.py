"""Tables and page of a reproduction: functions of its evidence, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, TypeVar

import numpy as np

from fedpace.analysis import Interval, Side, TextTable, anytime_interval, corrected_level, paired_interval
from fedpace.core import for_markdown
from fedpace.experiments.evidence import NO_PERCENTAGES, Evidence
from fedpace.experiments.metrics import TITLES

Key = TypeVar("Key")
Runs = Sequence[dict[str, Any]]


def tables(found: Evidence) -> list[TextTable]:
    """A table per metric: the paper's number, ours with its spread, the paired difference, and every repetition.

    Where no paper has any number, there is no column for it. Contrasts follow, as a table of differences.
    """
    own = [_table(found, metric) for metric in found["metrics"]]
    own += [_by_client(found)] if "clients" in found["runs"][0] else []
    return [*own, _contrasts(found)] if "contrasts" in found else own


def _table(found: Evidence, metric: str) -> TextTable:
    by_method = _by_method(found["runs"], metric)
    repetitions = list(dict.fromkeys(name for values in by_method.values() for name in values))
    each = repetitions if len(repetitions) > 1 else []
    digits = 3 if metric in NO_PERCENTAGES else 2
    columns: dict[str, tuple[Side, Sequence[str]]] = {"method": ("left", list(by_method))}
    if any(found["published"].values()):
        published = [found["published"].get(label, {}).get(metric) for label in by_method]
        columns["paper"] = ("right", [_number(value, digits) for value in published])
    columns["ours"] = ("right", [_mean(list(values.values()), digits) for values in by_method.values()])
    bases = {label: _base(found, label) for label in by_method}
    differences = {
        label: _paired(values, by_method[bases[label]]) for label, values in by_method.items() if label != bases[label]
    }
    compare = _Differences(len(differences), digits, sequential="until_decided" in found)
    columns[f"difference to {'its base' if 'versus' in found else found['reference']}"] = (
        "left",
        [compare.text(differences[label]) if label in differences else "–" for label in by_method],
    )
    if compare.sequential:
        pairs = [len(differences[label]) if label in differences else None for label in by_method]
        columns["pairs needed"] = ("right", ["–" if number is None else str(number) for number in pairs])
    for name, members in _columns(each).items():
        columns[name] = ("right", [_average(values, members, digits) for values in by_method.values()])
    remarks = [_caption(each, compare), _few(found["runs"], metric), _signs(found, metric, by_method)]
    caption = "\n\n".join(filter(None, remarks))
    return TextTable.of_columns(TITLES[metric], columns, caption)


def _by_client(found: Evidence) -> TextTable:
    """Each client at the end, with the paired difference to the row's base."""
    names = list(dict.fromkeys(name for run in found["runs"] for name in run["clients"]))
    rows = list(dict.fromkeys(run["method"] for run in found["runs"]))
    compare = _Differences(sum(_base(found, row) != row for row in rows) * len(names), 2)
    columns: dict[str, tuple[Side, Sequence[str]]] = {"method": ("left", rows)}
    for name in names:
        values: dict[str, dict[int, float]] = {row: {} for row in rows}
        for run in found["runs"]:
            if run["clients"].get(name) is not None:
                values[run["method"]][run["seed"]] = run["clients"][name]
        cells = []
        for row in rows:
            base = _base(found, row)
            difference = "" if base == row else f" ({compare.text(_paired(values[row], values[base]))})"
            cells.append(_mean(list(values[row].values()), 1) + difference)
        columns[name] = ("left", cells)
    return TextTable.of_columns("Each client after the last round (%)", columns, f"± over seeds. {compare.meaning}")


def _contrasts(found: Evidence) -> TextTable:
    """Differences of the first metric between two rows, or between two options of each base and of their mean."""
    metric = found["metrics"][0]
    by_method = _by_method(found["runs"], metric)
    bases = dict.fromkeys(found.get("versus", {"": ""}).values())
    columns: dict[str, tuple[Side, Sequence[str]]] = {}
    compare = _Differences(len(found["contrasts"]) * len(bases), 2)
    for name, pair in found["contrasts"].items():
        differences = {}
        for base in bases:
            one, other = (by_method.get(f"{base} {option}".strip(), {}) for option in pair)
            differences[base] = {seed: one[seed] - other[seed] for seed in one if seed in other}
        if len(bases) > 1:
            common = [seed for seed in differences[base] if all(seed in values for values in differences.values())]
            differences["all"] = {
                seed: float(np.mean([values[seed] for values in differences.values()])) for seed in common
            }
        columns["method"] = ("left", [base or "difference" for base in differences])
        columns[name] = ("left", [compare.text(list(values.values())) for values in differences.values()])
    meanings = [
        f"{name}: {one} minus {other or 'the method as it is'}" for name, (one, other) in found["contrasts"].items()
    ]
    caption = f"{'; '.join(meanings)}. {compare.meaning}"
    return TextTable.of_columns(f"{TITLES[metric]}: differences", columns, caption)


def _base(found: Evidence, label: str) -> str:
    """The row that a row is compared with."""
    base: str = found.get("versus", {}).get(label, found["reference"])
    return base


def _paired(values: Mapping[Key, float], base: Mapping[Key, float]) -> list[float]:
    return [values[key] - base[key] for key in values if key in base]


def _signs(found: Evidence, metric: str, by_method: Mapping[str, Mapping[str, float]]) -> str:
    """In how many pairs of rows, both of which the paper reports, our difference has the sign of the paper's."""
    signs = []
    for label, base in found.get("versus", {}).items():
        ours = paired_interval(_paired(by_method[label], by_method[base]))
        published = [found["published"].get(row, {}).get(metric) for row in (label, base)]
        if label != base and None not in published and not isnan(ours.mean):
            signs.append((np.sign(ours.mean) == np.sign(published[0] - published[1]), ours.excludes_zero))
    if not signs:
        return ""
    certain = [same for same, excludes_zero in signs if excludes_zero]
    return (
        f"Signs: in {sum(same for same, _ in signs)} of {len(signs)} pairs our difference has the sign of the paper's. "
        f"The paired interval excludes 0 in {len(certain)} pairs, {sum(certain)} of them with the paper's sign."
    )


def _by_method(runs: Runs, metric: str) -> dict[str, dict[str, float]]:
    """Method → repetition (a seed, a held-out domain, or both) → value; what was not measured is left out."""
    seeds = {run["seed"] for run in runs}
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        domain, seed = run.get("held_out"), f"seed {run['seed']}"
        name = seed if domain is None else domain if len(seeds) == 1 else f"{domain}, {seed}"
        values = found.setdefault(run["method"], {})
        if run[metric] is not None:
            values[name] = run[metric]
    return found


def _columns(repetitions: Sequence[str]) -> dict[str, list[str]]:
    """Each repetition has a column, except that those of a held-out domain share one."""
    found: dict[str, list[str]] = {}
    for name in repetitions:
        found.setdefault(name.partition(", seed ")[0], []).append(name)
    return found


def _average(values: Mapping[str, float], members: Sequence[str], digits: int) -> str:
    found = [values[name] for name in members if name in values]
    return f"{np.mean(found):.{digits}f}" if found else "–"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _mean(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


@dataclass(frozen=True)
class _Differences:
    """How the differences of a table are written: one of so many ``effects``, perhaps of pairs added until decided."""

    effects: int
    digits: int
    sequential: bool = False

    def text(self, differences: Sequence[float]) -> str:
        """The mean, its interval, and a star or two where that excludes 0."""
        interval = self._interval(differences)
        if isnan(interval.mean):
            return "–"
        if not isfinite(interval.low):
            return f"{interval.mean:+.{self.digits}f}"
        several = self.effects > 1 and not self.sequential
        stars = "*" * (interval.excludes_zero + (several and self._corrected(differences).excludes_zero))
        bounds = f"[{interval.low:+.{self.digits}f}, {interval.high:+.{self.digits}f}]"
        return f"{interval.mean:+.{self.digits}f} {bounds} {stars}".rstrip()

    def _interval(self, differences: Sequence[float]) -> Interval:
        return self._corrected(differences) if self.sequential else paired_interval(differences)

    def _corrected(self, differences: Sequence[float]) -> Interval:
        level = corrected_level(0.95, self.effects)
        return anytime_interval(differences, level) if self.sequential else paired_interval(differences, level)

    @property
    def meaning(self) -> str:
        """What brackets and stars say."""
        if self.sequential:
            return (
                "[ ] is a confidence sequence of the paired difference: all of them hold together at 95 %, however "
                "often one looked; * where it excludes 0."
            )
        several = f", ** where it still does for all {self.effects} differences together" if self.effects > 1 else ""
        return f"[ ] is the 95 % paired t interval of the difference, * where it excludes 0{several}."


def _caption(repetitions: Sequence[str], compare: _Differences) -> str:
    if not repetitions:
        return "A single run proves nothing: no spread, no interval."
    if len(_columns(repetitions)) < len(repetitions):
        return f"Columns of held-out domains are means over seeds. {_spread(repetitions, compare)}"
    return _spread(repetitions, compare)


def _spread(repetitions: Sequence[str], compare: _Differences) -> str:
    return f"± is the standard deviation over {len(repetitions)} repetitions. {compare.meaning}"


def _few(runs: Runs, metric: str) -> str:
    """What a mean of the last ten rounds is of, if there are not so many."""
    measured = max(sum(value is not None for value in run["curve"]) for run in runs)
    if metric != "last10" or measured >= 10:
        return ""
    return f"Only {measured} rounds were measured: the mean is over all of them."


def page(found: Evidence, pictures: Iterable[str]) -> str:
    """The results as a Markdown page; ``pictures`` are files beside it."""
    rounds = sorted({len(run["curve"]) for run in found["runs"]})
    seeds = sorted({run["seed"] for run in found["runs"]})
    changes = "".join(f" --set {key}={value}" for key, value in found["changes"].items())
    if "until_decided" in found:
        changes += f" --until-decided {100 * found['until_decided']['width']:g} --most {found['until_decided']['most']}"
    numbers = f"[{found['name']}.json]({found['name']}.json)"
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    parts = [
        f"# {found['title']}",
        found["source"],
        f"`fedpace reproduce {found['name']} --scale {found['scale']}{changes}`: {_listed(rounds)} rounds, "
        f"seeds {_listed(seeds)}. Every run with its curve, and all settings: {numbers}.",
        *(table.markdown() for table in tables(found)),
        *(f"![{found['title']}]({picture})" for picture in pictures),
        _section("What differs from the paper", found["differs"]),
        _section("What the runs warned of", _warnings(found["runs"])),
        f"Versions: {versions}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warnings(runs: Runs) -> list[str]:
    """Each warning once, and which rows it is about."""
    about: dict[str, dict[str, None]] = {}
    for run in runs:
        for warning in run["warnings"]:
            about.setdefault(for_markdown(warning), {})[run["method"]] = None
    rows = len({run["method"] for run in runs})
    return [f"{'all rows' if 1 < rows == len(labels) else ', '.join(labels)}: {text}" for text, labels in about.items()]


def _section(title: str, items: Iterable[str]) -> str:
    lines = [f"* {item}" for item in items]
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
