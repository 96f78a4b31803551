import pytest
from rich.console import Console

from fedpace.analysis import run_overview
from fedpace.analysis.show import sparkline
from fedpace.core import RoundRecord
from fedpace.tasks import Metric

RUN = {
    "config": {
        "data": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 0.1, "limit": None},
        "schedule": [{"name": "anneal", "k": 8}, {"name": "dampen"}],
        "rounds": 12,
        "notes": None,
    },
    "seed": 3,
    "versions": {"torch": "2.13.0"},
    "warnings": ["stage 'prune' cannot act [N = 3]"],
}


def shown(run, records):
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(run_overview(run, records))
    return [" ".join(line.strip("│ ").split()) for line in capture.get().splitlines()]


def test_settings_of_the_run(staged):
    lines = shown(RUN, staged)
    assert "partition dirichlet (alpha=0.1)" in lines
    assert "schedule anneal, dampen" in lines
    assert "seed 3" in lines
    assert "versions torch=2.13.0" in lines
    assert not any(line.startswith("notes") for line in lines)


def test_accuracy_stages_and_warnings(staged):
    lines = shown(RUN, staged)
    assert "final 32.00%" in lines  # 0.1 + 0.02 * 11
    assert "best 32.00%" in lines
    assert "area under curve 0.2100" in lines  # a straight line from .10 to .32
    assert any(line.startswith("by round ▁") and line.endswith("█ 10.00% to 32.00%") for line in lines)
    assert "anneal rounds 2–4: a search for a point where clients agree better, then training" in lines
    assert "fedavg rounds 5" in lines
    assert "stage 'prune' cannot act [N = 3]" in lines


TESTED = {"client_accuracy": {"0": 0.3, "1": 0.5, "2": 0.7}, "client_accuracy_on": "test"}


def test_how_evenly_clients_fare(record):
    history = [record(0, 0.45, **TESTED), record(1, client_accuracy={})]
    lines = shown(RUN, history)
    assert "over clients 50.00% on average, spread 16.33%, worst decile 30.00%" in lines
    assert not any(line.startswith("late clients") for line in lines)
    late = {"config": {"cohort": {"late": 1}}, "clients": 3}
    assert "late clients 70.00%" in shown(late, history)


@pytest.mark.parametrize("change", [{"client_accuracy_on": "train"}, {"client_accuracy": {"0": 0.3}}])
def test_evenness_needs_two_clients_with_tests_of_their_own(record, change):
    assert not any(line.startswith("over clients") for line in shown(RUN, [record(0, 0.45, **{**TESTED, **change})]))


def test_search_that_did_nothing_says_so(staged):
    assert "annealing accepted 0 of 24 perturbations: the search did nothing" in shown(RUN, staged)


def test_search_that_moved(record):
    history = [record(i, search={"accepted": i > 0, "candidates": 8}) for i in range(3)]
    assert "annealing accepted 2 of 24 perturbations (in 2 of 3 rounds)" in shown({}, history)


def test_pruning_and_dropped_clients(staged):
    lines = shown(RUN, staged)
    assert "pruned 5.00% of the parameters" in lines
    assert "client 2 NaN in [update]: rounds 1–3, 7" in lines


def test_of_many_dropped_clients_the_first_ones_are_named(record):
    history = [record(i, dropped=[{"client": 1000 * i + n, "reason": "NaN"} for n in range(20)]) for i in range(100)]
    lines = shown({}, [*history, record(100, dropped=[{"client": 7, "reason": "NaN"}])])
    named = [line for line in lines if line.startswith("client ")]
    assert len(named) == 30
    assert named[0] == "client 0 NaN: round 0"
    assert "1970 more named in rounds.jsonl" in lines


def test_what_did_not_happen_is_not_mentioned(curve):
    text = "\n".join(shown(RUN, curve([0.1])))
    for word in ("pruned", "annealing", "Dropped", "cosine"):
        assert word not in text


def test_bytes_and_seconds_by_phase(staged):
    lines = shown(RUN, staged)
    assert "up 1.2 kB" in lines
    assert "down 2.4 kB" in lines
    assert "time 24.0 s" in lines
    assert "local 18.0 s 75%" in lines
    assert "evaluate 6.0 s 25%" in lines


@pytest.mark.parametrize(("seconds", "words"), [(59.0, "59.0 s"), (65.0, "1 min 05 s"), (7384.0, "2 h 03 min")])
def test_long_times(record, seconds, words):
    assert f"time {words}" in shown({}, [record(0, seconds={"local": seconds})])


@pytest.mark.parametrize("run", [{}, {"config": None, "warnings": None, "seed": None}])
def test_missing_keys_are_tolerated(run):
    assert "no round measured accuracy" in shown(run, [])
    assert "final 50.00%" in shown(run, [RoundRecord(round=0, metrics={"accuracy": 0.5})])


def test_another_metric_is_named_and_shown_as_it_is():
    history = [RoundRecord(round=i, metrics={"MAE": mae, "loss": 2 * mae}) for i, mae in enumerate((0.5, 0.25, 0.75))]
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(run_overview({}, history, Metric("MAE", rises=False)))
    text = " ".join(capture.get().split())
    assert "MAE" in text
    assert "accuracy" not in text.lower()
    assert "final 0.750" in text
    assert "best 0.250" in text  # the lowest
    assert "loss 1.5" in text


def test_sparkline():
    assert sparkline([0.3, 0.3]) == "▁▁"
    assert sparkline([1, 0]) == "█▁"
    long = sparkline(range(1000), width=20)
    assert len(long) == 20
    assert long[0] == "▁"
    assert long[-1] == "█"


def test_stages_say_what_they_do_in_this_run(staged):
    run = {"config": {"dampen": {"pace": {"name": "agreement"}}}}
    assert "paced by agreement" in " ".join(shown(run, staged))


def test_who_reached_a_bound_is_named_with_rounds(record):
    history = [
        record(0, 0.3, capped=[4], shortened=[1, 4], bound=0.5),
        record(1, 0.3, capped=[4], bound=0.25),
        record(2, 0.3),
    ]
    lines = shown(RUN, history)
    assert "length of updates at most 0.25 in the last round" in lines
    assert "client 4 counted for less than its examples: rounds 0–1" in lines
    assert "client 4 update shortened: round 0" in lines
    assert "client 1 update shortened: round 0" in lines
    assert not any("Bounds" in line for line in shown(RUN, history[2:]))


def test_clients_that_train_privately_say_what_they_told(record):
    config = {"local": {"name": "sgd", "private": {"noise": 1.0, "delta": 1e-3}}}
    lines = shown({"config": config}, [record(0, 0.3, local_epsilon=1.5), record(1, 0.3, local_epsilon=2.25)])
    assert "local ε 2.25 at δ = 0.001 after 2 rounds" in lines
    assert "protects one example of a client, from whoever sees what the client sends" in lines


def test_a_private_run_says_what_it_told(record):
    history = [record(0, 0.3, epsilon=1.5), record(1, 0.3, epsilon=2.25)]
    config = {"privacy": {"noise": 1.0, "delta": 1e-3, "sampling": "fixed"}}
    lines = shown({"config": config}, history)
    assert "ε 2.25 at δ = 0.001 after 2 rounds" in lines
    assert "protects one client in place of another, from whoever sees the models" in lines
    assert "by round ▁█ 1.5 to 2.25" in lines
    assert "privacy noise=1.0, delta=0.001, sampling=fixed" in lines
    assert not any("Privacy" in line for line in shown(RUN, [record(0, 0.3)]))


def test_rounds_that_changed_nothing_say_why(record):
    still = "the step changed nothing"
    lines = shown(RUN, [record(0, 0.3, still=still), record(1, 0.3), record(2, 0.3, still=still)])
    assert "the step changed nothing rounds 0, 2" in lines
