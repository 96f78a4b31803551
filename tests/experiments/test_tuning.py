import json
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console

import fedpace
from fedpace.cli import main
from fedpace.core import ClientError, ConfigError
from fedpace.engine import Listener, RunFolder, read_rounds, read_run
from fedpace.experiments import RunConfig, execute, load_config, preset_names, tuning
from fedpace.experiments.reproduce import reproduce
from fedpace.experiments.reproduction import load_reproduction
from fedpace.experiments.tunable import Range, own_value
from fedpace.experiments.tuning import Candidate, tune, tuned_variants, tuning_table
from fedpace.methods import LocalSGD

from .helpers import FAST, Flat, fast_config, snapshot

QUIET = Console(file=StringIO())
COMMON = {"model": "linear", "rounds": 8, **FAST}


def tuned(folder, methods=("fedavg",), trials=4, seeds=(7, 8), reported=(0,), workers=1, console=QUIET, **settings):
    """What ``tuned_variants`` returns; ``local__lr`` stands for ``local.lr``."""
    own = {key.replace("__", "."): value for key, value in settings.items()}
    common = {key: value for key, value in COMMON.items() if key.split(".")[0] not in own} | own
    variants = methods if isinstance(methods, dict) else {name: {"method": name} for name in methods}
    return tuned_variants(variants, trials, seeds, reported, common, folder, console, workers=workers)


def runs(folder):
    return sorted(path.parent for path in (folder / "tuning").glob("*/*/run.json"))


def refused(message, folder, methods=("fedavg",), **options):
    with pytest.raises(ConfigError, match=message) as caught:
        tuned(folder, methods, **options)
    assert "\n" not in str(caught.value)
    assert snapshot(folder) == {}


# What can be tuned.


@pytest.mark.parametrize("name", preset_names())
def test_what_a_preset_declares_can_be_tuned(name):
    candidate = Candidate(name, lambda settings: [load_config(name, settings)])
    candidate.check(trials=100)
    assert candidate.own().keys() == load_config(name).tunable.keys()


def test_ranges():
    assert Range().bounds(0.01) == pytest.approx((0.001, 0.1))
    assert Range(low=0.1, high=1).bounds(0.5) == (0.1, 1)
    assert load_config("fedavg").tunable == {"local.lr": Range(factor=10)}
    assert load_config("fedprox", {"tunable.local.mu.high": 2}).tunable == {
        "local.lr": Range(),
        "local.mu": Range(low=0.001, high=2, log=True),
    }
    assert load_config("fedavg", {"tunable": {"local.lr": Range(factor=3)}}).tunable == {"local.lr": Range(factor=3)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 1},
        {"high": 1},
        {"low": 2, "high": 1},
        {"low": 1, "high": 1},
        {"low": 0, "high": 1, "log": True},
        {"log": True},
        {"choices": [1]},
        {"choices": [1, 1]},
        {"choices": [1, 2], "low": 1, "high": 2},
        {"factor": 1},
        {"lo": 1},
    ],
)
def test_a_range_that_is_none(wrong):
    with pytest.raises(ValidationError):
        Range(**wrong)


def test_own_value_names_the_nearest_key():
    config = load_config("gma")
    assert own_value(config, "aggregate.rule.tau") == 0.4
    with pytest.raises(ConfigError, match=r"tunable: unknown key 'aggregate.rule.tauu'; did you mean 'tau'\?"):
        own_value(config, "aggregate.rule.tauu")
    with pytest.raises(ConfigError, match=r"unknown key 'loca.lr'; did you mean 'local'\?"):
        own_value(config, "loca.lr")
    with pytest.raises(ConfigError, match=r"unknown key 'dampen.lr'; known: none"):
        own_value(config, "dampen.lr")


def test_what_is_tunable_changes_neither_fingerprint_nor_whether_a_run_is_resumed(tmp_path):
    one, other = fast_config(), fast_config(tunable__local__lr__factor=2)
    assert one.tunable != other.tunable
    assert one.fingerprint() == other.fingerprint()
    assert RunConfig(**json.loads(json.dumps(other.model_dump(mode="json")))) == other
    execute(one, out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    del run["config"]["tunable"]  # as a run of an older version
    RunFolder(tmp_path / "run").write_json("run.json", run)
    execute(other, out=tmp_path / "run", resume=True)


# Refusals, all of them before anything is trained.


def test_a_seed_that_is_reported(tmp_path):
    refused("tuning on a seed that is reported: 8; choose other tuning seeds", tmp_path, reported=[0, 8])


def test_no_seed_to_tune_on(tmp_path):
    refused("at least one seed", tmp_path, seeds=[])


@pytest.mark.parametrize("trials", [1, 0, -3])
def test_fewer_than_two_trials(tmp_path, trials):
    refused("a method needs at least two trials: its own settings and one more", tmp_path, trials=trials)


def test_fewer_trials_than_settings(tmp_path):
    message = "tuning fedprox: tuning local.lr, local.mu needs at least 3 trials, found 2"
    refused(message, tmp_path, ["fedavg", "fedprox"], trials=2)


def test_nothing_to_tune(tmp_path):
    refused("tuning a: nothing can be tuned", tmp_path, {"a": {"method": "fedavg", "local.lr": 0.1}})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tunable__local__lrr__factor": 2},
            r"tuning fedavg: tunable: unknown key 'local.lrr'; did you mean 'lr'\?",
        ),
        (
            {"tunable__local__lr": {"low": 0.1, "high": 1}},
            r"tuning fedavg: tunable.local.lr: its own value 0.001 is not between 0.1 and 1",
        ),
        ({"tunable__local__lr": {"choices": [0.1, 0.2]}}, "its own value 0.001 is none of the choices 0.1, 0.2"),
        ({"tunable__local__epochs": {"low": 1, "high": 9}}, "its own value 2 is no real number: expected choices"),
        ({"tunable__local__momentum": {"factor": 2}}, "its own value 0 cannot be multiplied by a factor"),
        ({"tunable__local__momentum": {"low": 0, "high": 3}}, r"tunable.local.momentum: .*less than 1, found 3.0"),
        ({"local": LocalSGD(epochs=1)}, "given as an object cannot be tuned; give a table with its name"),
    ],
)
def test_a_setting_that_cannot_be_tuned_so(tmp_path, settings, message):
    refused(message, tmp_path, **settings)


def test_two_methods_of_one_name(tmp_path):
    refused("two methods have one name: a b, a/b", tmp_path, {"a b": {"method": "fedavg"}, "a/b": {"method": "gma"}})


def test_a_mistake_in_the_data(tmp_path):
    with pytest.raises(fedpace.FedpaceError, match="5000 clients"):
        tuned(tmp_path, data__partition__clients=5000)
    assert snapshot(tmp_path) == {}


# Tuning.


def test_each_method_has_as_many_trials_and_begins_with_its_own_settings(tmp_path):
    variants, found = tuned(tmp_path, ["fedavg", "fedprox"], trials=5)
    assert [(one.label, one.trials, len(one.tried), one.seeds) for one in found] == [
        ("fedavg", 5, 5, [7, 8]),
        ("fedprox", 5, 5, [7, 8]),
    ]
    assert found[0].tried[0].settings == {"local.lr": 0.001}
    assert found[1].tried[0].settings == {"local.lr": 0.001, "local.mu": 0.01}
    for one in found:
        assert len({tuple(trial.settings.values()) for trial in one.tried}) == 5
        assert all(0.0001 <= trial.settings["local.lr"] <= 0.01 for trial in one.tried)
        assert one.tried[0].value is not None
        assert one.value == max(trial.value or 0 for trial in one.tried) >= one.tried[0].value
        assert one.settings in [trial.settings for trial in one.tried if trial.value == one.value]
        assert variants[one.label] == {"method": one.label, **one.settings}
    assert json.loads((tmp_path / "tuning.json").read_text()) == [asdict(one) for one in found]


def test_a_trials_accuracy_is_that_of_its_last_rounds_over_tuning_seeds(tmp_path):
    _, (found,) = tuned(tmp_path)
    for trial in found.tried:
        results = [fedpace.train(seed=seed, **_as_train(trial.settings)) for seed in (7, 8)]
        if trial.value is not None:
            assert trial.value == pytest.approx(sum(result.summary.last10 for result in results) / 2)


def _as_train(settings):
    return {"model": "linear", "rounds": 8, "settings": {**FAST, **settings}}


def test_pruned_trials_train_fewer_rounds(tmp_path):
    _, (found,) = tuned(tmp_path, trials=8, local__max_steps=5)
    pruned = [trial for trial in found.tried if trial.value is None]
    assert 0 < found.pruned == len(pruned) < 7
    assert all(trial.rounds in (2, 4) for trial in pruned)  # a quarter or half of the first seed's eight
    assert all(trial.rounds == 16 for trial in found.tried if trial.value is not None)
    assert found.rounds == sum(trial.rounds for trial in found.tried)
    assert found.rounds == sum(len(read_rounds(run)) for run in runs(tmp_path))
    assert found.seconds > 0


def test_reported_seeds_are_not_trained(tmp_path):
    tuned(tmp_path, reported=[0, 1, 2])
    assert {read_run(run)["seed"] for run in runs(tmp_path)} == {7, 8}
    assert {path.name for path in tmp_path.iterdir()} == {"tuning", "tuning.json"}


def test_a_second_call_trains_nothing(tmp_path, monkeypatch):
    first = tuned(tmp_path, ["fedavg", "fedprox"], trials=6, local__max_steps=5)
    assert sum(one.pruned for one in first[1]) > 0

    def forbidden(*arguments, **options):
        raise AssertionError("trains again")

    monkeypatch.setattr(tuning, "execute", forbidden)
    assert tuned(tmp_path, ["fedavg", "fedprox"], trials=6, local__max_steps=5) == first


def test_a_tuning_that_was_killed_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    whole = tuned(tmp_path / "whole", trials=6, local__max_steps=5)
    left = [2]

    class Dies(Listener):
        def finished_round(self, record):
            if left[0] == 0 and record.round == 0:
                raise KeyboardInterrupt

    def mortal(*arguments, listeners, **options):
        left[0] -= 1
        return execute(*arguments, listeners=[Dies(), *listeners], **options)

    monkeypatch.setattr(tuning, "execute", mortal)
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "killed", trials=6, local__max_steps=5)
    assert 0 < len(runs(tmp_path / "killed")) < len(runs(tmp_path / "whole"))
    left[0] = 100
    _, (again,) = tuned(tmp_path / "killed", trials=6, local__max_steps=5)
    assert (again.tried, again.settings, again.trials) == (whole[1][0].tried, whole[1][0].settings, 6)


def test_a_larger_budget_keeps_the_trials_that_are_there(tmp_path):
    _, (four,) = tuned(tmp_path, trials=4)
    before = {name: kept for name, kept in snapshot(tmp_path / "tuning").items() if "seed" in name}
    _, (six,) = tuned(tmp_path, trials=6)
    assert six.tried[:4] == four.tried
    after = snapshot(tmp_path / "tuning")
    assert {name: after[name] for name in before} == before


def test_processes_choose_what_one_process_chooses(tmp_path):
    one, two = (tuned(tmp_path / str(workers), ["fedavg", "gma"], trials=3, workers=workers) for workers in (1, 2))
    assert one[0] == two[0]
    assert [each.tried for each in one[1]] == [each.tried for each in two[1]]


def test_a_trial_that_fails_counts_as_the_worst(tmp_path, monkeypatch):
    def diverges(config, **options):
        if config.local.lr > 0.001:
            raise ClientError("every client failed in round 3")
        return execute(config, **options)

    monkeypatch.setattr(tuning, "execute", diverges)
    _, (found,) = tuned(tmp_path, trials=6)
    failed = [trial for trial in found.tried if trial.settings["local.lr"] > 0.001]
    assert failed
    assert all((trial.value, trial.failure) == (None, "every client failed in round 3") for trial in failed)
    assert found.settings["local.lr"] <= 0.001


@pytest.mark.parametrize("workers", [1, 2])
def test_if_every_trial_fails_it_is_one_line(tmp_path, monkeypatch, workers):
    def diverges(config, **options):
        raise ClientError("every client failed in round 3")

    monkeypatch.setattr(tuning, "execute", diverges)
    message = "tuning (fedavg|gma): no trial came to its end, .*: every client failed in round 3"
    with pytest.raises(fedpace.FedpaceError, match=message):
        tuned(tmp_path, ["fedavg", "gma"], workers=workers)


def test_what_a_variant_sets_is_not_tuned(tmp_path):
    variants = {
        "low": {"method": "gma", "aggregate.rule.tau": 0.2},
        "mean": {"method": "gma", "aggregate.rule": "mean"},
    }
    chosen, found = tuned(tmp_path, variants, trials=2)
    assert [list(one.settings) for one in found] == [["local.lr"], ["local.lr"]]
    assert chosen["low"]["aggregate.rule.tau"] == 0.2
    assert chosen["mean"]["aggregate.rule"] == "mean"


def test_common_settings_are_where_tuning_starts(tmp_path):
    _, (found,) = tuned(tmp_path, local__lr=0.5)
    assert found.tried[0].settings == {"local.lr": 0.5}
    assert all(0.05 <= trial.settings["local.lr"] <= 5 for trial in found.tried)


def test_choices(tmp_path):
    only = {"tunable": {"local.epochs": {"choices": [1, 2]}, "local.lr": {"choices": [0.001, 0.01]}}}
    _, (found,) = tuned(tmp_path, trials=6, **only)
    assert {trial.settings["local.epochs"] for trial in found.tried} == {1, 2}
    assert all(type(trial.settings["local.epochs"]) is int for trial in found.tried)
    assert found.rounds == sum(len(read_rounds(run)) for run in runs(tmp_path)) < sum(t.rounds for t in found.tried)


def test_rounding_does_not_leave_the_range(tmp_path):
    narrow = {"tunable": {"local.lr": {"low": 0.001, "high": 0.0010004}}}
    _, (found,) = tuned(tmp_path, trials=3, **narrow)
    assert all(0.001 <= trial.settings["local.lr"] <= 0.0010004 for trial in found.tried)


def test_a_tuning_of_one_method_by_hand(tmp_path):
    candidate = Candidate("mine", lambda settings: [load_config("fedavg", {**COMMON, "seed": 7, **settings})])
    found = tune(candidate, 3, tmp_path)
    assert (found.label, found.trials, found.seeds) == ("mine", 3, [7])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminal_sees_a_bar_per_method(tmp_path, workers):
    console = Console(file=StringIO(), force_terminal=True, width=140)
    tuned(tmp_path, ["fedavg", "gma"], trials=3, console=console, workers=workers)
    text = console.file.getvalue()
    assert "tuning fedavg" in text
    assert "tuning gma" in text
    assert "trial 3 of 3, best" in text
    assert "48/48" in text  # three trials of eight rounds on two seeds


def test_the_table(tmp_path):
    _, found = tuned(tmp_path, ["fedavg", "fedprox"])
    text = tuning_table(found).plain()
    assert "What was chosen in 4 trials each on seeds 7, 8, and its cost" in text
    for one in found:
        assert f"{one.tried[0].value * 100:.2f} → {one.value * 100:.2f}" in text
        for key, value in one.settings.items():
            assert f"{key}={value}" in text
    own = [type(one)(**{**vars(one), "settings": one.tried[0].settings}) for one in found]
    assert tuning_table(own).plain().count("(its own)") == 2


# Where it is used.


def test_compare_tunes_first(tmp_path):
    console = Console(file=StringIO(), width=140)
    options = {"model": "linear", "rounds": 8, "settings": FAST, "workers": 1, "console": console}
    found = fedpace.compare(["fedavg", "gma"], seeds=[0, 1], tune=3, out=tmp_path, **options)
    assert "What was chosen in 3 trials each on seeds 1000, 1001" in console.file.getvalue()
    written = json.loads((tmp_path / "tuning.json").read_text())
    for one, row in zip(written, found.rows, strict=True):
        assert (one["label"], one["seeds"]) == (row.method, [1000, 1001])
        for seed in (0, 1):
            config = RunConfig(**read_run(tmp_path / f"{row.method}-seed{seed}")["config"])
            assert {key: own_value(config, key) for key in one["settings"]} == one["settings"]


def test_compare_tunes_a_users_own_model_on_a_users_own_federation():
    federation = fedpace.load("digits").partition("iid", clients=3)
    found = fedpace.compare(
        ["fedavg"], federation, model=Flat(), rounds=3, tune=2, seeds=[0], settings=FAST, workers=1, console=QUIET
    )
    assert list(found.rows[0].values) == [0]


@pytest.fixture
def command(monkeypatch, capfd):
    """The command line: exit code, output, errors."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["fedpace", *map(str, arguments)])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return call


SHORT = (
    "--model",
    "linear",
    "--rounds",
    "4",
    "--workers",
    "1",
    "--set",
    "executor=serial",
    "--set",
    "local.max_steps=1",
)


def test_the_command_prints_what_was_chosen_before_it_compares(command):
    code, out, err = command("compare", "fedavg", "gma", *SHORT, "--seeds", "0,1", "--tune", 3, "--out", "out")
    assert (code, err) == (0, "")
    assert out.index("What was chosen in 3 trials") < out.index("Final accuracy")
    assert "wrote: out/tuning.json" in out
    settings = {one["label"]: one["settings"] for one in json.loads(Path("out/tuning.json").read_text())}
    run = read_run(Path("out/gma-seed1"))["config"]
    assert run["local"]["lr"] == settings["gma"]["local.lr"]
    assert run["aggregate"]["rule"]["tau"] == settings["gma"]["aggregate.rule.tau"]


def test_the_command_as_json(command):
    options = ("--seeds", "0", "--tune", 2, "--tuning-seeds", "5", "--out", "out", "--json")
    code, out, err = command("compare", "fedavg", *SHORT, *options)
    assert (code, err) == (0, "")
    (one,) = json.loads(out)["tuning"]
    assert (one["label"], one["trials"], one["seeds"]) == ("fedavg", 2, [5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "1"], "a method needs at least two trials"),
        (["--tune", "4", "--tuning-seeds", "1,2"], "tuning on a seed that is reported: 1"),
        (["--tune", "4", "--tuning-seeds", "a"], "--tuning-seeds a: expected whole numbers"),
    ],
)
def test_the_command_refuses_in_one_line(command, options, message):
    code, out, err = command("compare", "fedavg", "gma", *SHORT, *options, "--out", "out")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("out").exists()


def test_a_reproduction_whose_scale_asks_for_it_is_tuned(tmp_path, monkeypatch):
    whole = load_reproduction("gma.table2")
    smoke = whole.scales["smoke"].model_copy(update={"tune": 3, "tuning_seeds": (7,), "rounds": 4})
    rows = dict(list(whole.rows("smoke").items())[:2])
    small = whole.model_copy(update={"scales": {**whole.scales, "smoke": smoke}, "methods": rows})
    monkeypatch.setattr("fedpace.experiments.reproduce.load_reproduction", lambda name: small)
    done = reproduce("gma.table2", "smoke", runs=tmp_path / "runs", out=tmp_path / "out", workers=1, console=QUIET)
    written = json.loads((tmp_path / "out" / "gma.table2.json").read_text())
    assert written == done.evidence
    assert [one["label"] for one in written["tuning"]] == list(rows)
    for one in written["tuning"]:
        config = RunConfig(**written["settings"][one["label"]])
        assert (one["trials"], one["seeds"]) == (3, [7])
        assert {key: own_value(config, key) for key in one["settings"]} == one["settings"]
    assert any("tuned with 3 trials on seeds 7" in line for line in written["differs"])


def test_the_points_of_a_sweep_stay_where_they_are():
    sweep = load_reproduction("gma.figure3")
    assert all(row.value is not None for row in sweep.methods.values())
    for candidate in sweep.candidates("smoke"):
        assert candidate.fixed == tuple(sweep.methods[candidate.label].settings)
