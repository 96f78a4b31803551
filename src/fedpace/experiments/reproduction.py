"""Tables and figures of the papers as TOML files: what to run, what was published, what differs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from fedpace.core import ConfigError, Settings, first_error
from fedpace.experiments.batch import Job
from fedpace.experiments.config import RunConfig
from fedpace.experiments.presets import load_config
from fedpace.experiments.toml_files import REPRODUCTIONS, read_reproduction
from fedpace.experiments.tuning import TUNING_SEEDS, Candidate

ScaleName = Literal["smoke", "quick", "full"]
Metric = Literal[
    "final",
    "best",
    "last10",
    "auc",
    "similarity",
    "participating",
    "non_participating",
    "spread",
    "worst_decile",
    "late",
    "below_tau",
    "agreement",
    "attack",
    "majority",
    "equal_time",
    "time",
    "staleness",
]
Picture = Literal[
    "curves",
    "client_curves",
    "below_tau_curves",
    "seeds",
    "accuracy_and_similarity",
    "sweep",
    "sweep_of_agreement",
    "agreement_by_layer",
    "robust_and_fair",
    "time_curves",
    "cosine_by_staleness",
]
Overrides = dict[str, Any]


class Scale(Settings):
    """How much of a reproduction is run: the ``rows`` whose labels match one of these patterns (``*`` is anything).

    ``settings`` win over everything else; ``cases`` replace the usual ones. With ``tune`` each row is tuned first, by
    so many trials on ``tuning_seeds``.
    """

    rounds: int = Field(ge=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    rows: tuple[str, ...] = ("*",)
    settings: Overrides = Field(default_factory=dict)
    cases: dict[str, Overrides] = Field(default_factory=dict)
    differs: tuple[str, ...] = ()
    tune: int | None = None
    tuning_seeds: tuple[int, ...] = Field(TUNING_SEEDS, min_length=1)


class Variant(Settings):
    """A row: a preset (by default the one of its label) with some settings, and what the paper says about it.

    ``versus`` is the label of the row that it is compared with, by default the reproduction's reference. In a sweep the
    row is one point: ``panel`` names what is varied, ``value`` is where. Curves of each ``panel`` are a picture.
    """

    preset: str | None = None
    settings: Overrides = Field(default_factory=dict)
    published: dict[Metric, float] = Field(default_factory=dict)
    versus: str = ""
    panel: str = ""
    value: float | None = None


class Reproduction(Settings):
    """One table or figure.

    Attributes:
        name: ``paper.table1`` and the like; the name of its file.
        title: What it shows.
        source: Where the published numbers stand, and what they are.
        metrics: The columns; accuracies are in percent.
        reference: The label that differences refer to.
        contrasts: What else is compared: name → two rows, or two options of the last factor; the second is taken from
            the first.
        settings: Of every run.
        cases: Repetitions that are averaged like seeds (the held-out domains of PACS); none means one.
        methods: Label → row. A file may give ``factors``, too, whose combinations are further rows.
        pictures: What is drawn of the runs.
        by_client: Whether the clients of the last round stand in a table, too, each with its difference.
        differs: How the full scale differs from the paper.
        scales: ``smoke`` in seconds, ``quick`` in minutes, ``full`` the paper's setting.

    """

    name: str
    title: str
    source: str
    metrics: tuple[Metric, ...] = ("final",)
    reference: str
    contrasts: dict[str, tuple[str, str]] = Field(default_factory=dict)
    settings: Overrides = Field(default_factory=dict)
    cases: dict[str, Overrides] = Field(default_factory=dict)
    methods: dict[str, Variant]
    pictures: tuple[Picture, ...] = ()
    by_client: bool = False
    differs: tuple[str, ...] = ()
    scales: dict[ScaleName, Scale]

    def rows(self, scale: ScaleName) -> dict[str, Variant]:
        """The rows that a scale runs."""
        patterns = self.scales[scale].rows
        return {label: row for label, row in self.methods.items() if any(fnmatchcase(label, p) for p in patterns)}

    def jobs(
        self,
        scale: ScaleName,
        folder: Path,
        changes: Mapping[str, Any] | None = None,
        tuned: Mapping[str, Mapping[str, Any]] | None = None,
        rows: Collection[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[CaseJob]:
        """The runs of a scale, with some more ``changes``, and those that were ``tuned`` for the row of a label.

        ``rows`` and ``seeds`` replace the scale's. A run's folder follows from its config: runs are shared.
        """
        for key in {"rounds", "seed"} & set(changes or {}):
            raise ConfigError(f"--set {key}: the scale decides about {key}; choose another scale")
        found = []
        for label, case, seed in product(
            self.rows(scale) if rows is None else rows, self._cases(scale), seeds or self.scales[scale].seeds
        ):
            config = self._config(scale, label, case, {**(changes or {}), **(tuned or {}).get(label, {}), "seed": seed})
            name = f"{self.methods[label].preset or label}-{config.fingerprint()}-seed{seed}"
            found.append(CaseJob(label, config, folder / name, case))
        return found

    def candidates(self, scale: ScaleName, changes: Mapping[str, Any] | None = None) -> list[Candidate]:
        """The rows of a scale, to be tuned: what they set is where tuning starts; the points of a sweep stay put."""

        def runs(label: str, settings: Mapping[str, Any]) -> list[RunConfig]:
            pairs = product(self.scales[scale].tuning_seeds, self._cases(scale))
            own = {**(changes or {}), **settings}
            return [self._config(scale, label, case, {**own, "seed": seed}) for seed, case in pairs]

        fixed = {label: () if row.value is None else tuple(row.settings) for label, row in self.rows(scale).items()}
        return [Candidate(label, partial(runs, label), keys) for label, keys in fixed.items()]

    def _cases(self, scale: ScaleName) -> dict[str, Overrides]:
        return self.scales[scale].cases or self.cases or {"": {}}

    def _config(self, scale: ScaleName, label: str, case: str, changes: Mapping[str, Any]) -> RunConfig:
        row, chosen = self.methods[label], self.scales[scale]
        overrides = {**self.settings, **row.settings, **self._cases(scale)[case], **chosen.settings, **changes}
        return load_config(row.preset or label, *({key: value} for key, value in overrides.items())).shortened(
            chosen.rounds
        )


@dataclass(frozen=True)
class CaseJob(Job):
    """A run of a reproduction; ``case`` is empty where there is only one."""

    case: str


def load_reproduction(name: str) -> Reproduction:
    """A table or figure by name."""
    name = REPRODUCTIONS.known(name)
    table = read_reproduction(name)
    if "factors" in table:
        factors = [options for options in table.pop("factors").values() if options]  # a child drops one by emptying it
        table["methods"] = {**table.get("methods", {}), **_rows(factors, table.pop("published", {}))}
    try:
        return Reproduction(name=name, **table)
    except ValidationError as error:
        raise ConfigError(f"{name}: {first_error(Reproduction, error)}") from None


def _rows(factors: Sequence[dict[str, Any]], published: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    """A row for each combination of one option per factor: names are joined to its label, settings united.

    Where the last factor has an option without name, the others are compared with it. ``published`` has, by metric and
    beginning of a label, the values of all rows that begin so, in their order; NaN where the paper has none.
    """
    rows: dict[str, Any] = {}
    for chosen in product(*factors):
        label, base = (" ".join(filter(None, names)) for names in (chosen, (*chosen[:-1], "")))
        options = [factor[name] for factor, name in zip(factors, chosen, strict=True)]
        row = {key: value for option in options for key, value in option.items()}
        row["settings"] = {key: value for option in options for key, value in option.get("settings", {}).items()}
        rows[label] = {**row, "versus": base if "" in factors[-1] else "", "published": {}}
    for metric, blocks in published.items():
        for beginning, values in blocks.items():
            labels = [label for label in rows if label.startswith(beginning)]
            for label, value in zip(labels, values, strict=True):
                rows[label]["published"] |= {} if isnan(value) else {metric: value}
    return rows
