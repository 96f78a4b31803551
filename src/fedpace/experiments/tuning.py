"""Equal tuning budgets: every method gets the same number of trials, on seeds that are not reported."""

from __future__ import annotations

import json
import multiprocessing as mp
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import Progress

from fedpace.analysis import Side, TextTable, summarise
from fedpace.core import ACCURACY, ClientError, ConfigError, Metric, RoundRecord, for_terminal, slug, write_text
from fedpace.data import Data, Federation
from fedpace.engine import Listener, read_rounds, task_of
from fedpace.experiments.batch import Job, at_once, check_jobs, on_one_core, plan_jobs
from fedpace.experiments.config import RunConfig
from fedpace.experiments.parallel import Work, forks, named, side_by_side
from fedpace.experiments.progress import progress_bars
from fedpace.experiments.run import Model, Result, execute, federate
from fedpace.experiments.tunable import Range, own_value

if TYPE_CHECKING:  # optuna is slow to import: it is imported where something is tuned
    import optuna

TUNING_SEEDS = (1000, 1001)
_RESULT = "tuned.json"
Overrides = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A method to be tuned.

    ``runs`` are what a trial with some settings trains: a config for each tuning seed. The first of them decides
    whether the trial goes on. Keys that are ``fixed`` make a variant what it is, so they are not tuned.
    """

    label: str
    runs: Callable[[Overrides], list[RunConfig]]
    fixed: tuple[str, ...] = ()

    def ranges(self) -> dict[str, Range]:
        """What is tuned."""
        tunable = self.runs({})[0].tunable
        return {key: tunable[key] for key in tunable if not any(f"{key}.".startswith(f"{f}.") for f in self.fixed)}

    def own(self) -> dict[str, Any]:
        """The method's own values of what is tuned."""
        config = self.runs({})[0]
        return {key: own_value(config, key) for key in self.ranges()}

    def jobs(self, settings: Overrides, folder: Path) -> list[Job]:
        """The runs of a trial. A run's folder follows from its config: what was trained once is found again."""
        runs = self.runs(settings)
        return [Job(self.label, run, folder / f"{run.fingerprint()}-seed{run.seed}") for run in runs]

    def check(self, trials: int) -> None:
        """Refuse what would show after hours of training: a key, a range or a budget that cannot be used."""
        ranges, own = self.ranges(), self.own()
        if not ranges:
            raise ConfigError("nothing can be tuned; name a setting in its [tunable] table, or leave the method out")
        if trials <= len(ranges):
            keys = ", ".join(ranges)
            raise ConfigError(f"tuning {keys} needs at least {1 + len(ranges)} trials, found {trials}")
        for key, range_ in ranges.items():
            with named(f"tunable.{key}"):
                range_.check(own[key])
                for value in range_.choices or range_.bounds(own[key]):
                    self.runs({key: value})  # refuses a value that the method does not allow
        if self.runs(own) != self.runs({}):
            raise ConfigError("a setting that was given as an object cannot be tuned; give a table with its name")


@dataclass(frozen=True)
class Trial:
    """What was tried: without value if it was pruned, or, with the reason, if a run failed."""

    settings: dict[str, Any]
    value: float | None
    rounds: int
    folders: list[str]
    failure: str = ""


@dataclass(frozen=True)
class Tuned:
    """What was chosen for a method, and what it cost to find it.

    Attributes:
        label: The method.
        settings: The chosen values by dotted key.
        value: Their metric: mean over tuning seeds of the mean over the last ten measured rounds.
        seeds: The tuning seeds.
        trials: Number of trials.
        pruned: How many of them were ended early.
        metric: What was tuned for.
        rounds: Rounds trained in all.
        seconds: Seconds of training in all.
        tried: Every trial; the first one has the method's own settings.

    """

    label: str
    settings: dict[str, Any]
    value: float
    seeds: list[int]
    trials: int
    pruned: int
    rounds: int
    seconds: float
    tried: list[Trial]
    metric: Metric = ACCURACY


def tune(
    candidate: Candidate,
    trials: int,
    folder: Path,
    *,
    data: Data | Federation | None = None,
    model: Model | None = None,
    standing: Standing | None = None,
) -> Tuned:
    """Tune one method: its own settings first, then what Optuna suggests.

    After a quarter of the rounds of the first seed, and again after half of them, a trial goes on only if it is among
    the better half of those that came so far (successive halving); then it trains the other seeds, too.

    No trial is stored. A second call gets the same suggestions, because they follow from a seed and from earlier
    accuracies, and finds what was trained in the run folders: a tuning that was killed ends as if it had not been.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    runs = candidate.runs({})
    metric = task_of(federate(runs[0], data), runs[0].task).headline
    study = optuna.create_study(
        direction="maximize" if metric.rises else "minimize",
        # Five at random, then informed by them; Optuna's default of ten would leave small budgets to chance.
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=max(runs[0].rounds // 4, 1), reduction_factor=2),
    )
    study.enqueue_trial(candidate.own())
    standing = standing or Standing()
    tried: list[Trial] = []
    for number in range(1, trials + 1):
        tried.append(_try(candidate, study, folder, standing, data, model))
        # A trial that ended early counts as a whole one.
        standing.move(
            number * sum(run.rounds for run in runs),
            metric.best(trial.value for trial in tried if trial.value is not None),
        )
    finished = {trial.value: trial for trial in reversed(tried) if trial.value is not None}  # the first of equals
    if not finished:
        raise ClientError(f"no trial came to its end, not even that of its own settings: {tried[0].failure}")
    best = metric.best(finished)
    chosen = finished[best]
    records = [read_rounds(folder / name) for name in dict.fromkeys(name for one in tried for name in one.folders)]
    return Tuned(
        candidate.label,
        chosen.settings,
        best,
        seeds=list(dict.fromkeys(run.seed for run in runs)),
        trials=trials,
        pruned=sum(trial.value is None and not trial.failure for trial in tried),
        rounds=sum(map(len, records)),
        seconds=sum(summarise(run).seconds for run in records),
        tried=tried,
        metric=metric,
    )


def _try(
    candidate: Candidate,
    study: optuna.Study,
    folder: Path,
    standing: Standing,
    data: Data | Federation | None,
    model: Model | None,
) -> Trial:
    """One trial."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    asked, own = study.ask(), candidate.own()
    suggested = {key: _suggest(asked, key, range_, own[key]) for key, range_ in candidate.ranges().items()}
    settings = suggested if asked.number else own
    jobs = candidate.jobs(settings, folder)
    value: float | None = None
    failure = ""
    try:
        halving = _Halving(asked, jobs[0])
        values = [_value(jobs[0], [standing, halving], data, model)]
        values += [_value(job, [standing], data, model) for job in jobs[1:]]
        value = fmean(values)
    except TrialPruned:
        pass
    except ClientError as error:  # diverged; to the study, too, a trial that ended before all others
        failure = str(error)
    study.tell(asked, value, TrialState.PRUNED if value is None else TrialState.COMPLETE)
    rounds = sum(len(read_rounds(job.folder)) for job in jobs)
    return Trial(settings, value, rounds, [job.folder.name for job in jobs], failure)


def _suggest(trial: optuna.Trial, key: str, range_: Range, own: Any) -> Any:
    if range_.choices:
        return trial.suggest_categorical(key, range_.choices)
    low, high = range_.bounds(own)
    suggested = trial.suggest_float(key, low, high, log=range_.log or range_.low is None)
    # As tables show it, so that it can be typed after --set; rounding must not leave the range.
    return min(max(float(f"{suggested:.3g}"), low), high)


def _value(job: Job, listeners: list[Listener], data: Data | Federation | None, model: Model | None) -> float:
    """Of the last ten measured rounds; what an earlier call trained is not trained again."""
    if not job.complete:
        execute(job.config, data=data, model=model, out=job.folder, resume=True, listeners=listeners)
    return Result.read(job.folder).summary.last10


class _Halving(Listener):
    """Reports measured rounds to Optuna, and ends the run if that prunes the trial; also rounds of an earlier call."""

    def __init__(self, asked: optuna.Trial, job: Job) -> None:
        self._asked = asked
        self._rounds = job.config.rounds
        self._reported = 0
        for record in read_rounds(job.folder):
            self.finished_round(record)

    def finished_round(self, record: RoundRecord) -> None:
        """Raises ``TrialPruned``; not after the last round, whose cost is paid."""
        from optuna import TrialPruned

        done = record.round + 1
        if record.headline is None or not self._reported < done < self._rounds:
            return
        self._reported = done
        self._asked.report(record.headline, done)
        if self._asked.should_prune():
            raise TrialPruned


class Standing(Listener):
    """How many rounds of a tuning are done, and the best value so far.

    It lies in shared memory: a tuning that has a process of its own tells the one that draws the bars.
    """

    def __init__(self) -> None:
        self._shared = mp.RawArray("d", 2)
        self.redraw: Callable[[], None] = lambda: None

    @property
    def rounds(self) -> int:
        """Rounds done; a trial that ended early counts as a whole one."""
        return int(self._shared[0])

    @property
    def best(self) -> float:
        """The best value so far."""
        return float(self._shared[1])

    def move(self, rounds: int, best: float) -> None:
        """Set both."""
        self._shared[:] = [rounds, best]
        self.redraw()

    def finished_round(self, record: RoundRecord) -> None:
        """One round more."""
        self.move(self.rounds + 1, self.best)


def tune_all(
    candidates: Sequence[Candidate],
    trials: int,
    reported: Collection[int],
    folder: Path,
    console: Console,
    *,
    data: Data | Federation | None = None,
    model: Model | None = None,
    workers: int | None = None,
) -> list[Tuned]:
    """Tune methods side by side, each with the same number of trials; ``reported`` are seeds that stay untouched."""
    folders = {candidate.label: folder / slug(candidate.label) for candidate in candidates}
    _check(candidates, trials, reported, folders)
    jobs = [job for one in candidates for job in one.jobs({}, folders[one.label])]
    check_jobs(jobs, data, model)
    workers = min(at_once(jobs, workers), len(candidates))
    with progress_bars(console) as bars:
        works, draw = {}, {}
        for candidate in candidates:
            label, standing = candidate.label, Standing()
            draw[label] = _bar(bars, candidate, trials, standing)
            if forks(workers):
                candidate = replace(candidate, runs=partial(_serial, candidate.runs))
            else:
                standing.redraw = draw[label]
            write = partial(_write, candidate, trials, folders[label], data=data, model=model, standing=standing)
            works[label] = Work(f"tuning {label}", write)
        for labels in side_by_side(works, workers):
            for label in labels:
                draw[label]()
    return [TypeAdapter(Tuned).validate_json((folder / _RESULT).read_text()) for folder in folders.values()]


def _check(
    candidates: Sequence[Candidate], trials: int, reported: Collection[int], folders: Mapping[str, Path]
) -> None:
    """Refuse before any training what would make the comparison unfair or fail."""
    if trials < 2:
        raise ConfigError(f"a method needs at least two trials: its own settings and one more; found {trials}")
    if len(set(folders.values())) < len(candidates):
        raise ConfigError(f"two methods have one name: {', '.join(one.label for one in candidates)}")
    for candidate in candidates:
        if shared := {run.seed for run in candidate.runs({})} & set(reported):
            raise ConfigError(f"tuning on a seed that is reported: {min(shared)}; choose other tuning seeds")
        with named(f"tuning {candidate.label}"):
            candidate.check(trials)


def _serial(runs: Callable[[Overrides], list[RunConfig]], settings: Overrides) -> list[RunConfig]:
    """Each tuning has one core."""
    return [on_one_core(run) for run in runs(settings)]


def _bar(bars: Progress, candidate: Candidate, trials: int, standing: Standing) -> Callable[[], None]:
    """A bar for a method, and how to bring it up to date."""
    rounds = sum(run.rounds for run in candidate.runs({}))
    task = bars.add_task(for_terminal(f"tuning {candidate.label}"), total=trials * rounds, note="")

    def draw() -> None:
        note = f"trial {min(standing.rounds // rounds + 1, trials)} of {trials}, best {standing.best:.4g}"
        bars.update(task, completed=standing.rounds, note=note)

    return draw


def _write(candidate: Candidate, trials: int, folder: Path, **options: Any) -> None:
    """The result of a tuning in a process of its own goes through a file."""
    tuned = tune(candidate, trials, folder, **options)
    write_text(folder / _RESULT, json.dumps(asdict(tuned), indent=2) + "\n")


def tuned_variants(
    variants: Mapping[str, Overrides],
    trials: int,
    tuning_seeds: Sequence[int],
    seeds: Collection[int],
    common: Overrides,
    folder: Path,
    console: Console,
    *,
    data: Data | Federation | None = None,
    model: Model | None = None,
    workers: int | None = None,
) -> tuple[dict[str, dict[str, Any]], list[Tuned]]:
    """Variants (see :func:`plan_jobs`) with the settings that were chosen for them, and what that cost.

    What a variant sets itself stays as it is; ``common`` settings are where tuning starts. ``seeds`` are those that
    will be reported. Trials lie in ``folder/tuning``, what was chosen in ``folder/tuning.json``.
    """
    if not tuning_seeds:
        raise ConfigError("tuning needs at least one seed, found none")
    candidates = [
        Candidate(label, partial(_runs, label, variant, tuning_seeds, common), fixed=tuple(variant))
        for label, variant in variants.items()
    ]
    tuned = tune_all(candidates, trials, seeds, folder / "tuning", console, data=data, model=model, workers=workers)
    write_text(folder / "tuning.json", json.dumps([asdict(one) for one in tuned], indent=2) + "\n")
    return {one.label: {**variants[one.label], **one.settings} for one in tuned}, tuned


def _runs(
    label: str, variant: Overrides, seeds: Sequence[int], common: Overrides, settings: Overrides
) -> list[RunConfig]:
    """A config for each seed; folders are not planned here."""
    return [job.config for job in plan_jobs({label: {**variant, **settings}}, seeds, common, Path())]


def tuning_table(tuned: Sequence[Tuned]) -> TextTable:
    """What was chosen and what it cost."""
    columns: dict[str, tuple[Side, Sequence[str]]] = {
        "method": ("left", [one.label for one in tuned]),
        "chosen": ("left", [_chosen(one) for one in tuned]),
        tuned[0].metric.label: ("right", [f"{_own(one)} → {one.metric.number(one.value)}" for one in tuned]),
        "pruned": ("right", [str(one.pruned) for one in tuned]),
        "rounds": ("right", [str(one.rounds) for one in tuned]),
        "seconds": ("right", [f"{one.seconds:.0f}" for one in tuned]),
    }
    trials, seeds = tuned[0].trials, ", ".join(map(str, tuned[0].seeds))
    caption = (
        f"{tuned[0].metric.label} is the mean of the last ten measured rounds, with a method's own settings → with the "
        "chosen ones. The best of several trials looks better than it is: only the comparison, on other seeds, is "
        "fair. Pruned trials were ended early."
    )
    return TextTable.of_columns(
        f"What was chosen in {trials} trials each on seeds {seeds}, and its cost", columns, caption
    )


def _chosen(tuned: Tuned) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in tuned.settings.items())
    return f"{settings} (its own)" if tuned.settings == tuned.tried[0].settings else settings


def _own(tuned: Tuned) -> str:
    value = tuned.tried[0].value
    return "–" if value is None else tuned.metric.number(value)
