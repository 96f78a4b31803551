"""One command per table or figure: run what it needs, then write numbers, page and pictures."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpace.core import write_text, writing
from fedpace.experiments.batch import run_batch
from fedpace.experiments.evidence import Evidence, evidence
from fedpace.experiments.evidence_page import page
from fedpace.experiments.metrics import measure
from fedpace.experiments.pictures import draw
from fedpace.experiments.reproduction import CaseJob, Reproduction, ScaleName, load_reproduction
from fedpace.experiments.run import Result
from fedpace.experiments.sequential import Sequential, UntilDecided
from fedpace.experiments.tuning import Tuned, tune_all


@dataclass(frozen=True)
class Reproduced:
    """The evidence, and the files that were written: JSON, page, pictures."""

    evidence: Evidence
    files: list[Path]


def reproduce(
    name: str,
    scale: ScaleName = "quick",
    *,
    changes: Mapping[str, Any] | None = None,
    until_decided: UntilDecided | None = None,
    runs: Path = Path("runs/reproduce"),
    out: Path | None = None,
    workers: int | None = None,
    console: Console | None = None,
) -> Reproduced:
    """Reproduce a table or figure, with ``changes`` to any settings (which the page then names).

    With ``until_decided`` seeds are added to those of the scale until each difference of the first metric is decided.
    Finished runs in ``runs`` are taken as they are, interrupted ones are resumed. Results go to ``out``; by default
    full ones to ``docs/results`` and others beside their runs, so that a quick look never replaces evidence.
    """
    reproduction = load_reproduction(name)
    folder = runs / scale
    out = out or (Path("docs/results") if scale == "full" else folder)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)  # hours before it is needed
    console = console or Console(stderr=True)
    tuned = _tune(reproduction, scale, changes, folder, console, workers)
    settings = {one.label: one.settings for one in tuned}

    def plan(rows: Collection[str], seeds: Sequence[int]) -> list[CaseJob]:
        return reproduction.jobs(scale, folder, changes, settings, rows, seeds)

    def run(jobs: list[CaseJob]) -> list[Result]:
        distinct = list({job.folder: job for job in jobs}.values())  # two rows may be one and the same run
        finished = run_batch(distinct, console, workers=workers)
        by_folder = dict(zip((job.folder for job in distinct), finished, strict=True))
        return [by_folder[job.folder] for job in jobs]

    rows, seeds = reproduction.rows(scale), reproduction.scales[scale].seeds
    jobs = plan(rows, seeds)
    if until_decided is not None:
        jobs = Sequential(
            until_decided,
            versus={label: row.versus or reproduction.reference for label, row in rows.items()},
            plan=plan,
            run=run,
            pair=lambda job: (job.case, job.config.seed),
            value=lambda result: measure(reproduction.metrics[0], result),
            avoid=[seed for one in tuned for seed in one.seeds],
        ).complete(seeds)
    results = run(jobs)
    found = evidence(reproduction, scale, jobs, results, changes or {})
    if until_decided is not None:
        found["until_decided"] = until_decided.model_dump()
    if tuned:
        trials, on = tuned[0].trials, ", ".join(map(str, tuned[0].seeds))
        found["differs"].append(f"Every row was tuned with {trials} trials on seeds {on}; all are in the JSON file.")
        found["tuning"] = [asdict(one) for one in tuned]
    pictures = draw(reproduction, jobs, results, out)
    written = [out / f"{name}.json", out / f"{name}.md"]
    write_text(written[0], json.dumps(found, indent=1, allow_nan=False) + "\n")
    write_text(written[1], page(found, [path.name for path in pictures if path.suffix == ".png"]))
    return Reproduced(found, written + pictures)


def _tune(
    reproduction: Reproduction,
    scale: ScaleName,
    changes: Mapping[str, Any] | None,
    folder: Path,
    console: Console,
    workers: int | None,
) -> list[Tuned]:
    """What is chosen for each row, if the scale asks for it."""
    chosen = reproduction.scales[scale]
    if chosen.tune is None:
        return []
    candidates, tuning = reproduction.candidates(scale, changes), folder / "tuning" / reproduction.name
    return tune_all(candidates, chosen.tune, chosen.seeds, tuning, console, workers=workers)
