"""What a reproduction found, as plain data: the JSON file of which its tables and page are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isnan, nan
from typing import Any

from fedpace.analysis import metric_curve, similarity_curve
from fedpace.engine import read_run
from fedpace.experiments.metrics import in_virtual_time, measure
from fedpace.experiments.reproduction import CaseJob, Metric, Reproduction, ScaleName
from fedpace.experiments.run import Result

Evidence = dict[str, Any]

_ALWAYS: tuple[Metric, ...] = ("final", "best", "last10", "auc", "similarity")
NO_PERCENTAGES = ("auc", "similarity", "time", "staleness")  # everything else is in percent


def evidence(
    reproduction: Reproduction,
    scale: ScaleName,
    jobs: Sequence[CaseJob],
    results: Sequence[Result],
    changes: Mapping[str, Any],
) -> Evidence:
    """Everything that a reader needs to check a table: settings, versions, and each run's numbers and curve."""
    chosen = reproduction.scales[scale]
    rows = reproduction.rows(scale)
    versus = {label: row.versus for label, row in rows.items() if row.versus}
    contrasts = {name: list(pair) for name, pair in reproduction.contrasts.items()}
    settings = {job.label: _settings(job) for job in jobs}
    return {
        "name": reproduction.name,
        "title": reproduction.title,
        "source": reproduction.source,
        "scale": scale,
        "metrics": list(reproduction.metrics),
        "reference": reproduction.reference,
        **({"versus": versus} if versus else {}),
        **({"contrasts": contrasts} if contrasts else {}),
        "published": {label: row.published for label, row in rows.items()},
        "differs": [*reproduction.differs, *chosen.differs, *(f"{key} = {value}." for key, value in changes.items())],
        "changes": dict(changes),
        "settings": settings,
        "versions": read_run(jobs[0].folder)["versions"],
        "runs": [
            _run(job, result, reproduction.metrics, _of_same_seed(job, jobs, results))
            | (_of_clients(result) if reproduction.by_client else {})
            for job, result in zip(jobs, results, strict=True)
        ],
    }


def _settings(job: CaseJob) -> dict[str, Any]:
    """What all runs of a row have in common."""
    settings = job.config.model_dump(mode="json", exclude={"seed", "executor", "track", "tunable"})
    if job.case:
        settings["data"]["partition"].pop("held_out")
    return settings


def _of_same_seed(job: CaseJob, jobs: Sequence[CaseJob], results: Sequence[Result]) -> list[Result]:
    """The runs of all rows that have the case and the seed of this one."""
    pair = job.case, job.config.seed
    return [one for other, one in zip(jobs, results, strict=True) if (other.case, other.config.seed) == pair]


def _run(job: CaseJob, result: Result, metrics: Iterable[Metric], beside: Sequence[Result]) -> dict[str, Any]:
    summary = asdict(result.summary)
    wanted = dict.fromkeys([*_ALWAYS, *metrics])
    found = {metric: measure(metric, result, beside) for metric in wanted}
    measured = {metric: value * (1 if metric in NO_PERCENTAGES else 100) for metric, value in found.items()}
    values, similarity = metric_curve(result.records), similarity_curve(result.records)
    rounds = [record.round for record in result.records]
    return {
        "method": job.label,
        "data": job.config.data.source,
        "seed": job.config.seed,
        **({"held_out": job.case} if job.case else {}),
        **{metric: _rounded(value) for metric, value in measured.items()},
        "curve": [_rounded(100 * values.get(number, nan)) for number in rounds],
        "similarity_curve": [_rounded(similarity.get(number, nan)) for number in rounds],
        "accepted": summary["accepted"],
        "searched": summary["searched"],
        "pruned": summary["pruned"],
        "bytes_up": summary["bytes_up"],
        "bytes_down": summary["bytes_down"],
        "seconds": round(summary["seconds"], 1),
        "warnings": result.warnings,
        **in_virtual_time(result),
    }


def _of_clients(result: Result) -> dict[str, Any]:
    """What each client's model, or the model of all, achieves on the client's own examples at the end, by name."""
    assert result.folder is not None  # reproductions run in folders
    names = read_run(result.folder)["client_names"]
    last = result.records[-1].client_headlines
    return {"clients": {names[client]: _rounded(100 * value) for client, value in last.items()}}


def _rounded(value: float) -> float | None:
    """JSON knows no NaN, and nobody needs sixteen digits."""
    return None if isnan(value) else round(value, 6)
