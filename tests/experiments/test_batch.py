import logging
import multiprocessing as mp
import os
import signal
from io import StringIO

import pytest
from rich.console import Console

from fedpace.core import FedpaceError, RunFolderError
from fedpace.engine import Listener
from fedpace.experiments import Result, execute
from fedpace.experiments.batch import run_batch

from .helpers import Flat, fast_config, job, measured, snapshot

QUIET = Console(file=StringIO())


def fresh(**overrides):
    return measured(execute(fast_config(**overrides)).records)


class Mortal(Flat):
    """A model whose process is killed (or what else the signal does) in the middle of training, once."""

    def __init__(self, marker, number=signal.SIGKILL):
        super().__init__()
        self.marker = marker
        self.number = number
        self.left = 8

    def forward(self, x):
        self.left -= self.training
        if self.left == 0 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), self.number)
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(tmp_path, workers):
    jobs = [job(tmp_path, "slow", rounds=30), job(tmp_path, "quick", rounds=1, local__lr=0.1)]
    slow, quick = run_batch(jobs, QUIET, workers=workers)
    assert (len(slow.records), len(quick.records)) == (30, 1)
    assert measured(quick.records) == fresh(rounds=1, local__lr=0.1)
    assert (slow.folder, quick.folder) == (tmp_path / "slow", tmp_path / "quick")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_run_names_the_run(tmp_path, workers):
    jobs = [job(tmp_path, "good"), job(tmp_path, "greedy", cohort__number=9, seed=4)]
    with pytest.raises(FedpaceError, match=r"greedy · seed 4: .*9 clients are to be sampled") as caught:
        run_batch(jobs, QUIET, workers=workers)
    assert "\n" not in str(caught.value)
    assert mp.active_children() == []


def only_in_another_process(act):
    """A model factory that does as asked everywhere but here."""
    parent = os.getpid()

    def factory():
        if os.getpid() != parent:
            act()
        return Flat()

    return factory


def test_a_crash_in_a_process_names_the_run(tmp_path):
    with pytest.raises(FedpaceError, match=r"fedavg · seed 0: .*exit code 7"):
        run_batch([job(tmp_path)], QUIET, model=only_in_another_process(lambda: os._exit(7)), workers=2)


def test_a_factory_that_raises_in_a_process_is_one_line_with_its_reason(tmp_path):
    with pytest.raises(FedpaceError, match=r"fedavg · seed 0: model .* cannot be built .*ZeroDivisionError"):
        run_batch([job(tmp_path)], QUIET, model=only_in_another_process(lambda: 1 / 0), workers=2)


def test_an_error_ends_the_other_runs_and_keeps_their_rounds(tmp_path):
    long, bad = job(tmp_path, "long", rounds=100_000), job(tmp_path, "bad", cohort__number=9)
    with pytest.raises(FedpaceError, match="bad"):
        run_batch([long, bad], QUIET, workers=2)
    assert mp.active_children() == []
    assert not long.complete
    kept = len(Result.read(long.folder).records) if long.folder.exists() else 0
    assert kept < 100_000


def test_a_run_whose_process_is_killed_is_completed_by_the_same_call(tmp_path):
    model = Mortal(tmp_path / "marker")
    jobs = [job(tmp_path, "killed", rounds=6)]
    with pytest.raises(FedpaceError, match=r"killed · seed 0: .*exit code -9"):
        run_batch(jobs, QUIET, model=model, workers=2)
    assert 0 < len(Result.read(jobs[0].folder).records) < 6
    (result,) = run_batch(jobs, QUIET, model=model, workers=2)
    assert measured(result.records) == measured(execute(jobs[0].config, model=model).records)


def test_a_stopped_process_is_told_of_and_goes_on_when_it_is_allowed_to(tmp_path, monkeypatch):
    said = []

    def warning(text, *values):
        said.append(text % values)
        os.kill(values[-1], signal.SIGCONT)

    monkeypatch.setattr(logging.getLogger("fedpace"), "warning", warning)
    model = Mortal(tmp_path / "marker", signal.SIGSTOP)
    (result,) = run_batch([job(tmp_path, "halted", rounds=6)], QUIET, model=model, workers=2)
    assert len(said) == 1
    assert said[0].startswith("halted · seed 0: its process was stopped; it goes on after: kill -CONT ")
    assert measured(result.records) == measured(execute(fast_config(rounds=6), model=model).records)


def test_a_time_limit_for_turns_holds_in_runs_side_by_side(tmp_path):
    model = Mortal(tmp_path / "marker", signal.SIGSTOP)
    limited = job(tmp_path, "limited", rounds=6, executor={"name": "processes", "turn_timeout": 2})
    (result,) = run_batch([limited], QUIET, model=model, workers=2)
    assert (tmp_path / "marker").exists()
    assert measured(result.records) == measured(execute(fast_config(rounds=6), model=model).records)


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 2:
                raise KeyboardInterrupt

    half = job(tmp_path, "half", rounds=5)
    with pytest.raises(KeyboardInterrupt):
        execute(half.config, out=half.folder, listeners=[Stop()])
    lines = (half.folder / "rounds.jsonl").read_text().splitlines()
    assert len(lines) == 3
    (result,) = run_batch([half], QUIET, workers=1)
    assert (half.folder / "rounds.jsonl").read_text().splitlines()[:3] == lines
    assert measured(result.records) == fresh(rounds=5)


def test_a_folder_of_another_config_is_refused_before_anything_is_trained(tmp_path):
    old = job(tmp_path, "old", local__lr=0.5)
    run_batch([old], QUIET, workers=1)
    before = snapshot(tmp_path)
    with pytest.raises(RunFolderError, match=r"old: holds a run with local.lr = 0.5, this one has 0.001"):
        run_batch([job(tmp_path, "new"), job(tmp_path, "old")], QUIET, workers=1)
    assert snapshot(tmp_path) == before


def test_a_mistake_in_the_data_shows_before_anything_is_trained(tmp_path):
    jobs = [job(tmp_path, "good"), job(tmp_path, "bad", data__partition__clients=5000)]
    with pytest.raises(FedpaceError, match="5000 clients"):
        run_batch(jobs, QUIET, workers=1)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bad · seed 0: asynchronous.concurrency: 20 clients are to train at a time, but there are only 5"),
        ({"asynchronous__concurrency": 5, "asynchronous__buffer": 2, "cohort__number": 2}, "expected no cohort beside"),
    ],
)
def test_clients_that_cannot_be_under_way_show_before_anything_is_trained(settings, message, tmp_path):
    bad = {"data__partition__clients": 5, "asynchronous__buffer": 10, "speeds": "equal", **settings}
    with pytest.raises(FedpaceError, match=message):
        run_batch([job(tmp_path, "good"), job(tmp_path, "bad", **bad)], QUIET, workers=1)
    assert snapshot(tmp_path) == {}


def test_warnings_of_a_finished_run_are_kept(tmp_path):
    idle = {"anneal__first": 0, "anneal__last": 1, "preset": "fedgga-paper"}
    (result,) = run_batch([job(tmp_path, "idle", **idle)], QUIET, workers=2)
    assert any("annealing did nothing" in warning for warning in result.warnings)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminal_sees_a_bar_per_run(tmp_path, workers):
    console = Console(file=StringIO(), force_terminal=True, width=120)
    run_batch([job(tmp_path, "one"), job(tmp_path, "two", seed=3)], console, workers=workers)
    text = console.file.getvalue()
    assert "one · seed 0" in text
    assert "two · seed 3" in text
    assert "4/4" in text  # of all runs together; the bar of a single one vanishes with its last round


def test_anything_else_sees_nothing(tmp_path):
    console = Console(file=StringIO(), force_terminal=False)
    run_batch([job(tmp_path)], console, workers=1)
    assert console.file.getvalue() == ""
