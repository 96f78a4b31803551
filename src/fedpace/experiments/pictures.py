"""The pictures of a reproduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from fedpace.analysis import (
    SweepPoint,
    agreement_by_layer,
    client_metric_curve,
    cosine_by_staleness,
    labelled_points,
    metric_and_similarity_of,
    metric_curves,
    metric_over_time,
    save,
    seed_points,
    sweep_figure,
)
from fedpace.core import RoundRecord, slug
from fedpace.experiments.metrics import TAU, TITLES, below_tau_curve, measure
from fedpace.experiments.reproduction import CaseJob, Metric, Picture, Reproduction
from fedpace.experiments.run import Result


def draw(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result], out: Path) -> list[Path]:
    """Every picture as PNG for the eye and as SVG for a paper."""
    written = []
    for number, kind in enumerate(reproduction.pictures):
        stem = reproduction.name if number == 0 else f"{reproduction.name}.{kind}"
        for panel in _panels(reproduction, jobs) if kind in _BY_PANEL else [""]:
            figure = _PICTURES[kind](*_only(panel, reproduction, jobs, results))
            for suffix in ("png", "svg"):
                written.append(out / (f"{stem}.{slug(panel)}.{suffix}" if panel else f"{stem}.{suffix}"))
                save(figure, written[-1])
    return written


def _panels(reproduction: Reproduction, jobs: Sequence[CaseJob]) -> list[str]:
    return list(dict.fromkeys(reproduction.methods[job.label].panel for job in jobs))


def _only(
    panel: str, reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]
) -> tuple[Reproduction, list[CaseJob], list[Result]]:
    """What a picture of one panel shows; its title names the panel, so that labels need not."""
    chosen = [i for i, job in enumerate(jobs) if reproduction.methods[job.label].panel == panel or not panel]
    title = f"{reproduction.title.partition(':')[0]}: {panel}" if panel else reproduction.title

    def short(label: str) -> str:
        return label.removeprefix(f"{panel}: ")

    shorter = [replace(jobs[i], label=short(jobs[i].label)) for i in chosen]
    methods = {
        short(label): variant.model_copy(update={"versus": short(variant.versus)})
        for label, variant in reproduction.methods.items()
        if variant.panel == panel or not panel
    }
    narrowed = reproduction.model_copy(update={"title": title, "methods": methods})
    return narrowed, shorter, [results[i] for i in chosen]


def _curves(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    return metric_curves(
        _histories(jobs, results),
        title=reproduction.title,
        repetitions=_repetition(reproduction) + "s",
        bases={label: variant.versus for label, variant in reproduction.methods.items() if variant.versus},
    )


def _client_curves(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    return metric_curves(
        _histories(jobs, results),
        title=reproduction.title,
        of=client_metric_curve,
        ylabel="accuracy on the clients",
        repetitions=_repetition(reproduction) + "s",
    )


def _below_tau_curves(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    ylabel = f"coordinates with agreement below {TAU}"
    return metric_curves(_histories(jobs, results), title=reproduction.title, of=below_tau_curve, ylabel=ylabel)


def _seeds(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    """The first metric of the table."""
    values: dict[str, dict[int, float]] = {}
    for number, (job, result) in enumerate(zip(jobs, results, strict=True)):
        values.setdefault(job.label, {})[number] = measure(reproduction.metrics[0], result)
    measured = TITLES[reproduction.metrics[0]].removesuffix(" (%)")
    return seed_points(values, title=reproduction.title, xlabel=measured, repetition=_repetition(reproduction))


def _repetition(reproduction: Reproduction) -> str:
    """What runs of a row differ in."""
    return "held-out domain" if reproduction.cases else "seed"


def _accuracy_and_similarity(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    """The first seed of every method, as in the paper."""
    firsts = {label: runs[0] for label, runs in _histories(jobs, results).items()}
    return metric_and_similarity_of(firsts, title=reproduction.title)


def _agreement_by_layer(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    """The first run of the reference."""
    first = _histories(jobs, results)[reproduction.reference][0]
    return agreement_by_layer(first, title=f"Where clients agree: {reproduction.reference}")


def _sweep(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    return sweep_figure(_tried("similarity", reproduction, jobs, results), title=reproduction.title)


def _sweep_of_agreement(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    tried = _tried("agreement", reproduction, jobs, results)
    return sweep_figure(tried, title=reproduction.title, below="agreement of signs")


def _tried(
    below: Metric, reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]
) -> dict[str, list[SweepPoint]]:
    """The first metric of the table, and another; rows that are compared with a base are another line than it."""
    panels: dict[str, list[SweepPoint]] = {}
    for job, result in zip(jobs, results, strict=True):
        variant = reproduction.methods[job.label]
        if variant.value is not None:
            line = job.label.removeprefix(variant.versus).strip() if variant.versus else ""
            accuracy = measure(reproduction.metrics[0], result)
            point = SweepPoint(variant.value, accuracy, measure(below, result), line or "mean")
            panels.setdefault(variant.panel, []).append(point)
    return panels


def _robust_and_fair(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    """Panels are attacks; the reference's is that without any, where it is the worst clients that count."""
    without = reproduction.methods[reproduction.reference].panel
    found: dict[str, dict[str, list[float]]] = {}
    for job, result in zip(jobs, results, strict=True):
        panel = reproduction.methods[job.label].panel
        rule = job.label.removeprefix(f"{panel}:").strip() or "mean"
        metric: Metric = "worst_decile" if panel == without else "final"
        found.setdefault(rule, {}).setdefault(panel, []).append(measure(metric, result))
    points = {
        rule: (min(fmean(values) for panel, values in panels.items() if panel != without), fmean(panels[without]))
        for rule, panels in found.items()
    }
    return labelled_points(
        points,
        title=reproduction.title,
        xlabel="accuracy under the attack that hurts most (robust)",
        ylabel="worst tenth of the clients without attack (fair)",
    )


def _time_curves(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    histories, repetitions = _histories(jobs, results), _repetition(reproduction) + "s"
    return metric_over_time(histories, title=reproduction.title, repetitions=repetitions)


def _cosine_by_staleness(reproduction: Reproduction, jobs: Sequence[CaseJob], results: Sequence[Result]) -> Figure:
    return cosine_by_staleness(_histories(jobs, results), title=reproduction.title)


def _histories(jobs: Sequence[CaseJob], results: Sequence[Result]) -> dict[str, list[list[RoundRecord]]]:
    found: dict[str, list[list[RoundRecord]]] = {}
    for job, result in zip(jobs, results, strict=True):
        found.setdefault(job.label, []).append(result.records)
    return found


_PICTURES: dict[Picture, Callable[[Reproduction, Sequence[CaseJob], Sequence[Result]], Figure]] = {
    "curves": _curves,
    "client_curves": _client_curves,
    "below_tau_curves": _below_tau_curves,
    "seeds": _seeds,
    "accuracy_and_similarity": _accuracy_and_similarity,
    "sweep": _sweep,
    "sweep_of_agreement": _sweep_of_agreement,
    "agreement_by_layer": _agreement_by_layer,
    "robust_and_fair": _robust_and_fair,
    "time_curves": _time_curves,
    "cosine_by_staleness": _cosine_by_staleness,
}
_BY_PANEL: tuple[Picture, ...] = (
    "curves",
    "client_curves",
    "below_tau_curves",
    "time_curves",
    "cosine_by_staleness",
)
