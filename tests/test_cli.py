import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from fedpace.cli import ENDING, main
from fedpace.core import ConfigError, Disk, FedpaceError
from fedpace.experiments import preset_names

from .data.helpers import png, write_parquet
from .processes import alive, children, has_proc, hears_signals, until, with_modules

Ended = namedtuple("Ended", "code out err")

LINEAR = ("--model", "linear")
SHORT = ("--set", "executor=serial", "--set", "local.max_steps=1", "--set", "measuring.per_client=0")
FAST = (*LINEAR, *SHORT, "--rounds", "2")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The working folder of a command: empty, and without a terminal. Its own handlers of signals end with the test."""
    for name in ("FEDPACE_DATA", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    handlers = {number: signal.getsignal(number) for number in ENDING}
    yield folder
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def fedpace(monkeypatch, capfd):
    """Runs the command line in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedpace", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *capfd.readouterr())

    return call


def process(*arguments, **environment):
    """Runs the command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedpace.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=hears_signals,
    )


def ended(child):
    out, err = child.communicate(timeout=120)
    return Ended(child.returncode, out, err)


def strict(text):
    """JSON as other languages read it."""

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_json(folder):
    return json.loads((Path(folder) / "run.json").read_text())


def rounds_of(folder):
    file = Path(folder) / "rounds.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def losses(folder):
    return [json.loads(line)["metrics"]["loss"] for line in (Path(folder) / "rounds.jsonl").read_text().splitlines()]


# What a user can get wrong: one line, exit code 2, nothing written.

BAD = {
    "preset": (["run", "fedavgg"], "unknown preset 'fedavgg'; did you mean 'fedavg'?"),
    "preset that looks like markup": (["run", "[/foo]"], "unknown preset '[/foo]'"),
    "method": (["compare", "fedavg", "gmaa"], "unknown preset 'gmaa'; did you mean 'gma'?"),
    "swept preset": (["sweep", "gmaa", "--grid", "rounds=1,2"], "unknown preset 'gmaa'; did you mean 'gma'?"),
    "key": (["run", "fedavg", "--set", "lcal.lr=1"], "fedavg: unknown key 'lcal'; did you mean 'local'?"),
    "nested key": (["run", "fedavg", "--set", "local.lrr=1"], "unknown key 'lrr'; did you mean 'lr'?"),
    "key of a rule": (["run", "gma", "--set", "aggregate.rule.taw=1"], "unknown key 'taw'; did you mean 'tau'?"),
    "key of a stage": (["run", "fedgga", "--set", "anneal.kk=1"], "unknown key 'anneal.kk'; did you mean 'k'?"),
    "learning rate": (["run", "fedavg", "--set", "local.lr=-1"], "lr: input should be greater than 0, found -1"),
    "tau": (["run", "gma", "--set", "aggregate.rule.tau=2"], "tau: input should be less than or equal to 1, found 2"),
    "rounds": (["run", "fedavg", "--set", "rounds=0"], "rounds: input should be greater than or equal to 1, found 0"),
    "rounds as words": (["run", "fedavg", "--set", "rounds=ten"], "found 'ten'"),
    "seed": (["run", "fedavg", "--seed", "-1"], "seed: input should be greater than or equal to 0, found -1"),
    "overlap": (
        ["run", "fedpace-paper", *LINEAR, "--set", "dampen.last=45"],
        "stages 'dampen' (rounds 20 to 45) and 'prune' (rounds 42 to 49) overlap",
    ),
    "stage after the end": (["run", "fedgga", *FAST, "--set", "anneal.last=15"], "needs 16 rounds, the run has 2"),
    "schedule too long": (
        ["run", "fedpace-paper", *LINEAR, "--rounds", "45", "--set", "prune.last=49"],
        "needs 50 rounds, the run has 45",
    ),
    "schedule too long to compare": (
        ["compare", "fedgga", *FAST, "--set", "anneal.last=15"],
        "needs 16 rounds, the run has 2",
    ),
    "data folder": (["run", "fedavg", *FAST, "--data", "./nowhere"], "nowhere: no such file or folder"),
    "data name": (["compare", "fedavg", "--data", "digitss"], "unknown data source 'digitss'; did you mean 'digits'?"),
    "truncated parquet": (["run", "fedavg", "--data", "cut.parquet"], "cut.parquet: expected a complete parquet file"),
    "undecodable image": (["run", "fedavg", "--data", "images"], "b.png: expected an encoded image"),
    "undecodable row": (["compare", "fedavg", "--data", "rows.parquet"], "row 1 of rows.parquet: expected an encoded"),
    "labels": (["run", "fedavg", "--data", "labels.parquet"], "labels.parquet: labels out of range: expected 0 to 1"),
    "too many clients": (["run", "fedavg", "--set", "data.partition.clients=5000"], "5000 clients with at least 10"),
    "too many clients to compare": (["compare", "fedavg", "--clients", "5000"], "5000 clients with at least 10"),
    "empty client": (["run", "fedavg", "--set", "data.partition=mine:Unfair"], "client '1' has no training examples"),
    "no domains": (["run", "fedavg", "--set", "data.partition=leave_one_domain_out"], "found 0; use 'pacs'"),
    "alpha of another partition": (
        ["compare", "fedavg", "--partition", "iid", "--alpha", "0.1"],
        "partition 'iid': unknown key 'alpha'",
    ),
    "model": (["run", "fedavg", "--model", "linea"], "unknown model 'linea'; did you mean 'linear'?"),
    "model path": (["run", "fedavg", "--model", "no.such:thing"], "model 'no.such:thing': cannot be imported"),
    "model that is no Python": (["run", "fedavg", "--model", "broken:model"], "model 'broken:model': cannot be"),
    "model of another size": (
        ["run", "fedavg", "--model", "mine:seven"],
        "output size must match the data's 10 classes",
    ),
    "model of another size to compare": (["compare", "fedavg", "--model", "mine:seven"], "fedavg · seed 0: model"),
    "rule that is none": (["run", "fedavg", "--set", "aggregate.rule=json:dumps"], "json:dumps"),
    "seeds": (["compare", "fedavg", "--seeds", "a,b"], "--seeds a,b: expected whole numbers separated by commas"),
    "no seeds": (["compare", "fedavg", "--seeds", ""], "expected whole numbers separated by commas"),
    "no value": (["run", "fedavg", "--set", "novalue"], "--set novalue: expected key=value"),
    "bad TOML": (["run", "bad.toml"], "bad.toml: not valid TOML"),
    "missing TOML": (["compare", "missing.toml"], "missing.toml: preset cannot be read"),
    "circular TOML": (["run", "circle.toml"], "circle.toml"),
    "TOML in another encoding": (["run", "latin.toml"], "latin.toml"),
    "grid without values": (["sweep", "fedavg", "--grid", "rounds="], "--grid rounds=: expected key=value,value"),
    "grid without equals": (["sweep", "fedavg", "--grid", "rounds"], "--grid rounds: expected key=value,value"),
    "grid of an unknown key": (["sweep", "gma", "--grid", "local.lrr=1,2"], "unknown key 'lrr'; did you mean 'lr'?"),
    "cohort": (
        ["run", "fedavg", *FAST, "--set", "cohort.number=9"],
        "9 clients are to be sampled, but there are only 3",
    ),
    "cohort twice": (
        ["run", "fedavg", "--set", "cohort.number=2", "--set", "cohort.fraction=0.5"],
        "cohort: give a fraction or a number of clients, not both",
    ),
    "two values of a key": (["run", "fedavg", *FAST, "--set", "rounds=3"], "rounds: given twice, as 2 and as 3"),
    "two seeds": (["run", "fedavg", "--seed", "1", "--set", "seed=2"], "seed: given twice, as 1 and as 2"),
    "two names": (
        ["compare", "fedavg", "--partition", "iid", "--set", "data.partition=dirichlet"],
        "data.partition.name: given twice, as 'iid' and as 'dirichlet'",
    ),
    "a seed to compare": (["compare", "fedavg", "--set", "seed=2"], "use --seeds"),
    "a grid over what is set": (["sweep", "gma", "--grid", "rounds=1,2", "--rounds", "3"], "rounds: given twice"),
    "executor": (["run", "fedavg", "--set", "executor=gpu"], "unknown executor 'gpu'; known: processes, serial"),
    "tracker": (
        ["run", "fedavg", "--set", 'track=["wandb"]'],
        "input should be 'tensorboard' or 'mlflow', found 'wandb'",
    ),
    "run folder that is a file": (["run", "fedavg", *FAST, "--out", "bad.toml"], "bad.toml: cannot be written"),
    "no run": (["show", "images"], "images: is not a run folder (no run.json)"),
    "damaged run": (["show", "damaged"], "run.json: is damaged (invalid json"),
    "data to show": (["data", "show", "digitss"], "did you mean 'digits'?"),
    "parameter of a partition": (
        ["data", "show", "digits", "--set", "alfa=1"],
        "unknown key 'alfa'; did you mean 'alpha'?",
    ),
}


@pytest.fixture
def mistakes(place, monkeypatch):
    """Files and modules with something wrong in them."""
    write_parquet(place / "cut.parquet", [0, 1])
    (place / "cut.parquet").write_bytes((place / "cut.parquet").read_bytes()[:-20])
    write_parquet(place / "rows.parquet", [0, 1], images=[png(0), b"no image"])
    write_parquet(place / "labels.parquet", [-1, 1])
    for name, content in (("a", png(0)), ("b", b"no image")):
        (place / "images" / name).mkdir(parents=True)
        (place / "images" / name / f"{name}.png").write_bytes(content)
    (place / "bad.toml").write_text("rounds = [")
    (place / "circle.toml").write_text('extends = "circle.toml"')
    (place / "latin.toml").write_bytes(b'description = "\xff"')
    (place / "damaged").mkdir()
    (place / "damaged" / "run.json").write_text("{")
    modules = place.parent / "modules"
    modules.mkdir()
    (modules / "broken.py").write_text("def (")
    (modules / "mine.py").write_text(
        "import numpy as np\n"
        "from torch import nn\n"
        "from fedpace.data import Assignment, Partition\n"
        "def seven(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))\n"
        "class Unfair(Partition):\n"
        "    def assign(self, examples, rng):\n"
        "        return Assignment([np.arange(len(examples)), np.arange(0)])\n"
    )
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(modules)
    yield place
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(fedpace, mistakes, case):
    arguments, message = BAD[case]
    before = snapshot(mistakes)
    found = fedpace(*arguments)
    assert found.err.startswith("error: ")
    assert message in found.err
    assert found.err.count("\n") == 1
    assert (found.code, found.out) == (2, "")
    assert snapshot(mistakes) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "nothing"], "nothing"),
        (["run", "fedavg", "--rounds", "ten"], "--rounds"),
        (["run", "fedavg", "--sett", "a=b"], "--sett"),
        (["compare", "fedavg", "--workers", "0"], "--workers"),
        (["run"], "preset"),
        (["rnu"], "rnu"),
    ],
    ids=["choice", "number", "option", "range", "missing", "command"],
)
def test_a_command_that_cannot_be_parsed_is_one_line(fedpace, arguments, message):
    found = fedpace(*arguments)
    assert (found.code, found.out) == (2, "")
    assert message.lower() in found.err.lower()
    assert found.err.count("\n") == 1


def test_a_missing_tracker_is_one_line(fedpace, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    found = fedpace("run", "fedavg", *FAST, "--set", 'track=["mlflow"]')
    assert found == (2, "", "error: track: mlflow is not installed; pip install 'fedpace[track]'\n")
    assert snapshot(place) == {}


def test_debug_shows_where_it_happened(fedpace):
    with pytest.raises(ConfigError, match="unknown preset"):
        fedpace("run", "fedavgg", "--debug")
    with pytest.raises(FedpaceError, match="is not a run folder"):
        fedpace("--debug", "show", "nowhere")


# Run folders.


def test_a_folder_that_holds_a_run_is_left_alone(fedpace, place):
    assert fedpace("run", "fedavg", *FAST, "--out", "mine").code == 0
    before = snapshot(place)
    assert fedpace("run", "fedavg", *FAST, "--out", "mine") == (
        2,
        "",
        "error: mine: already holds a run; add --resume to go on, or choose another --out\n",
    )
    found = fedpace("run", "fedavg", *FAST, "--set", "local.lr=0.5", "--out", "mine", "--resume")
    assert found == (
        2,
        "",
        "error: mine: holds a run with local.lr = 0.001, this one has 0.5; choose another --out\n",
    )
    assert fedpace("run", "gma", *FAST, "--out", "mine", "--resume").code == 2
    assert snapshot(place) == before


def test_a_finished_run_may_be_resumed(fedpace, place):
    fedpace("run", "fedavg", *FAST, "--out", "mine")
    before = losses("mine"), (place / "mine" / "model.safetensors").read_bytes()
    assert fedpace("run", "fedavg", *FAST, "--out", "mine", "--resume").code == 0
    assert (losses("mine"), (place / "mine" / "model.safetensors").read_bytes()) == before


def test_resume_without_a_run_begins_one(fedpace):
    assert fedpace("run", "fedavg", *FAST, "--out", "mine", "--resume").code == 0
    assert len(losses("mine")) == 2


def test_the_default_folder_names_method_data_and_seed(fedpace, place):
    fedpace("run", "gma", *FAST, "--seed", "3")
    assert run_json(place / "runs" / "gma-digits-seed3")["config"]["seed"] == 3


def test_a_seed_changes_the_run_however_it_is_given(fedpace):
    for arguments in (["--seed", "3", "--out", "a"], ["--set", "seed=3", "--out", "b"], ["--out", "c"]):
        assert fedpace("run", "fedavg", *FAST, *arguments).code == 0
    assert losses("a") != losses("c")
    assert losses("a") == losses("b")


def test_options_and_settings_hold_together(fedpace):
    given = [*FAST, "--clients", "5", "--set", "data.partition.name=iid", "--set", "rounds=2", "--out", "mine"]
    assert fedpace("run", "fedavg", *given).code == 0
    assert run_json("mine")["config"]["data"]["partition"].items() >= {"name": "iid", "clients": 5}.items()


def test_a_toml_file_is_a_method(fedpace, place):
    (place / "mine.toml").write_text('extends = "gma"\nrounds = 1\nmodel = "linear"\naggregate.rule.tau = 0.7\n')
    assert fedpace("run", "mine.toml", *SHORT, "--out", "run").code == 0
    config = run_json("run")["config"]
    assert (config["method"], config["rounds"], config["aggregate"]["rule"]["tau"]) == ("mine", 1, 0.7)


def test_own_data_from_a_folder_of_images(fedpace, place):
    for number in range(40):
        folder = place / "pets" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(number))
    found = fedpace("run", "fedavg", *FAST, "--data", place / "pets", "--set", "data.partition=iid", "--json")
    assert (found.code, found.err) == (0, "")
    assert run_json(place / "runs" / "fedavg-pets-seed0")["config"]["data"]["source"] == str(place / "pets")


# What is printed.


def test_run_says_what_came_out_and_where_it_is(fedpace, place):
    found = fedpace("run", "fedavg", *FAST, "--out", place / "mine")
    assert (found.code, found.err) == (0, "")
    final = json.loads((place / "mine" / "rounds.jsonl").read_text().splitlines()[-1])["metrics"]["accuracy"]
    assert f"final {final:.2%}" in found.out
    assert f"{place / 'mine' / 'curves.png'}\n" in found.out
    assert (place / "mine" / "curves.png").stat().st_size > 0


def test_compare_shows_spread_and_paired_differences(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0,1,2", "--out", place / "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    assert found.out.count("±") >= 2
    assert "difference to fedavg" in found.out
    assert "95 %" in found.out
    for name in ("comparison.md", "comparison.png"):
        assert f"{place / 'out' / name}\n" in found.out
        assert (place / "out" / name).stat().st_size > 0
    assert len((place / "out" / "comparison.md").read_text().splitlines()) > 3


def test_compare_of_methods_that_share_their_settings_warns_of_nothing(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0", "--out", place / "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    assert "differ in more than their names" not in found.out


def test_compare_names_what_else_differs_between_methods(fedpace, place):
    off = [part for stage in ("anneal", "dampen", "prune") for part in ("--set", f"{stage}.enabled=false")]
    methods = ("fedavg", "fedpace-paper")
    found = fedpace("compare", *methods, *FAST, *off, "--seeds", "0,1", "--out", place / "out", "--workers", "1")
    assert found.code == 0
    warning = "methods differ in more than their names: weighting (fedavg: samples; fedpace-paper: uniform)"
    assert found.err == f"warning: {warning}\n"


def test_compare_as_json(fedpace, place):
    found = fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "0,1,2", "--out", "out", "--workers", "1", "--json")
    table = strict(found.out)
    assert found.err == ""
    assert (table["reference"], table["metric"], table["level"]) == ("fedavg", "final", 0.95)
    first, second = table["rows"]
    assert first["difference"] is None
    assert second["difference"]["low"] <= second["difference"]["mean"] <= second["difference"]["high"]
    for row in (first, second):
        for seed in ("0", "1", "2"):
            shown = strict(fedpace("show", f"out/{row['method']}-seed{seed}", "--json").out)
            assert row["values"][seed] == shown["summary"]["final"]
        assert row["mean"] == pytest.approx(sum(row["values"].values()) / 3)


def test_compare_with_one_seed_has_no_interval(fedpace):
    table = strict(fedpace("compare", "fedavg", "gma", *FAST, "--seeds", "4", "--out", "out", "--json").out)
    assert table["rows"][1]["difference"]["low"] is None
    assert table["rows"][1]["std"] is None


def test_compare_deals_the_data_as_told(fedpace):
    options = ["--data", "digits", "--partition", "dirichlet", "--alpha", "5", "--clients", "4", "--seeds", "0"]
    assert fedpace("compare", "fedavg", *FAST, *options, "--out", "out").code == 0
    assert run_json("out/fedavg-seed0")["config"]["data"]["partition"] == {
        "name": "dirichlet",
        "clients": 4,
        "test_share": 0.0,
        "limit": None,
        "alpha": 5.0,
        "min_size": 10,
    }


def test_a_second_compare_trains_only_what_is_missing(fedpace, place):
    fedpace("compare", "fedavg", *FAST, "--seeds", "0", "--out", "out", "--workers", "1")
    model = place / "out" / "fedavg-seed0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert fedpace("compare", "fedavg", *FAST, "--seeds", "0,1", "--out", "out", "--workers", "1").code == 0
    assert model.stat().st_mtime_ns == before
    assert len(losses("out/fedavg-seed1")) == 2


def test_two_files_of_one_name_are_not_mixed_up(fedpace, place):
    for folder, parent in (("a", "fedavg"), ("b", "gma")):
        (place / folder).mkdir()
        (place / folder / "mine.toml").write_text(f'extends = "{parent}"\n')
    found = fedpace("compare", "a/mine.toml", "b/mine.toml", *FAST, "--seeds", "0", "--out", "out", "--json")
    if found.code == 0:
        assert len(strict(found.out)["rows"]) == 2
    else:
        assert (found.code, found.err.count("\n")) == (2, 1)
        assert not (place / "out").exists()


def test_compare_tells_of_a_stage_that_did_nothing(fedpace):
    idle = ["--set", "anneal.first=0", "--set", "anneal.last=1", "--set", "anneal.k=2"]
    found = fedpace("compare", "fedgga-paper", *FAST, *idle, "--seeds", "0", "--out", "out")
    assert found.code == 0
    assert found.err.startswith("warning: annealing did nothing: none of 4 perturbations was accepted")
    assert found.err.count("\n") == 1


def test_sweep_over_a_grid(fedpace, place):
    grid = ["--grid", "local.lr=0.1,0.01", "--grid", "local.epochs=1,2"]
    found = fedpace("sweep", "fedavg", *FAST, *grid, "--out", "out", "--workers", "1")
    assert (found.code, found.err) == (0, "")
    again = fedpace("sweep", "fedavg", *FAST, *grid, "--out", "out", "--workers", "1", "--json")
    rows = strict(again.out)["rows"]
    labels = [row["method"] for row in rows]
    assert labels == [f"local.lr={lr}, local.epochs={epochs}" for lr in (0.1, 0.01) for epochs in (1, 2)]
    assert rows[0]["values"]["0"] != rows[2]["values"]["0"]
    assert all(label in (place / "out" / "comparison.md").read_text() for label in labels)


@pytest.mark.parametrize("kind", ["methods", "presets", "data", "models", "partitions", "rules"])
def test_list(fedpace, kind):
    entries = strict(fedpace("list", kind, "--json").out)
    found = fedpace("list", kind)
    assert (found.code, found.err) == (0, "")
    words = {line.split(maxsplit=1)[0] for line in found.out.splitlines() if not line.startswith(" ")}
    assert set(entries) < words
    assert all(entries.values())


def test_list_presets_lists_all_of_them(fedpace):
    assert list(strict(fedpace("list", "presets", "--json").out)) == preset_names()


def test_show_a_run(fedpace):
    result = strict(fedpace("run", "gma", *FAST, "--out", "mine", "--json").out)
    found = fedpace("show", "mine")
    assert (found.code, found.err) == (0, "")
    for part in ("gma", "masked", "linear", f"{result['summary']['final']:.2%}"):
        assert part in found.out
    shown = strict(fedpace("show", "mine", "--json").out)
    assert shown["summary"] == result["summary"]
    assert shown["config"]["aggregate"]["rule"]["tau"] == 0.4


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("operation", ["make_folder", "write", "save", "append", "rename"])
def test_a_disk_that_takes_nothing_is_one_line_whatever_was_to_be_written(fedpace, monkeypatch, operation, number):
    def refuse(disk, *arguments):
        raise OSError(number, os.strerror(number))

    assert fedpace("run", "fedavg", *FAST, "--out", "begun").code == 0
    shutil.rmtree("begun/checkpoint")  # so that it begins again
    monkeypatch.setattr(Disk, operation, refuse)
    for arguments in (["--out", "new"], ["--out", "begun", "--resume"]):
        found = fedpace("run", "fedavg", *FAST, *arguments)
        assert found.code == 2
        assert f": cannot be written ({os.strerror(number)})" in found.err.splitlines()[-1]
        assert "Traceback" not in found.err


def test_json_of_what_was_never_measured_is_null(fedpace, place):
    result = fedpace("run", "fedavg", *FAST, "--set", "cohort.number=1", "--out", "mine", "--json")
    assert strict(result.out)["summary"]["similarity"] is None
    assert strict(fedpace("show", "mine", "--json").out)["summary"]["similarity"] is None
    run = json.loads((place / "mine" / "run.json").read_text())
    del run["finished"]  # stopped before its first round
    (place / "mine" / "run.json").write_text(json.dumps(run))
    (place / "mine" / "rounds.jsonl").write_text("")
    assert strict(fedpace("show", "mine", "--json").out)["summary"]["final"] is None
    assert fedpace("show", "mine").code == 0


def test_data_show_draws_a_picture(fedpace, place):
    options = ["--partition", "dirichlet", "--alpha", "0.1", "--clients", "3"]
    counts = strict(fedpace("data", "show", "digits", *options, "--json").out)
    assert snapshot(place) == {}
    assert counts["classes"] == list("0123456789")
    assert sum(map(sum, counts["counts"].values())) == counts["examples"]["all"] == 1438
    assert counts["clients"] == len(counts["counts"]) == 3
    found = fedpace("data", "show", "digits", *options)
    assert (found.code, found.err) == (0, "")
    for client in counts["counts"].values():
        assert str(max(client)) in found.out
    (picture,) = snapshot(place)
    assert picture.suffix == ".png"
    assert str(picture.relative_to(place)) in found.out


def test_data_show_writes_where_it_is_told(fedpace, place):
    found = fedpace("data", "show", "digits", "--set", "clients=4", "--out", place / "new" / "deal.svg")
    assert (found.code, found.err) == (0, "")
    assert (place / "new" / "deal.svg").read_text().startswith("<?xml")
    assert f"{place / 'new' / 'deal.svg'}\n" in found.out


def test_data_show_refuses_a_picture_of_an_unknown_kind(fedpace, place):
    found = fedpace("data", "show", "digits", "--out", "deal.gif")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "deal.gif: expected a name that ends in .pdf, .png, .svg" in found.err
    assert snapshot(place) == {}


def test_data_show_depends_on_seed_and_size(fedpace):
    zero, one, resized = (
        strict(fedpace("data", "show", "digits", "--json", *options).out)["counts"]
        for options in ([], ["--seed", "1"], ["--set", "size=4"])
    )
    assert zero == resized != one


def test_an_interrupt_is_one_line_that_says_how_to_go_on(fedpace, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedpace.experiments.engines.execute", interrupted)
    found = fedpace("run", "fedavg", *FAST)
    assert (found.code, found.out, found.err.count("\n")) == (130, "", 1)
    assert "--resume" in found.err


# Whole processes.


def test_a_process_that_succeeds_prints_json_and_each_warning_once():
    stage = ["--set", "prune.first=0", "--set", "prune.last=1"]
    found = ended(process("run", "fedpace-prune", *FAST, *stage, "--out", "mine", "--json"))
    assert found.code == 0
    (warning,) = strict(found.out)["warnings"]
    assert found.err == f"warning: {warning}\n"


def test_a_process_that_fails_ends_with_2_and_one_line():
    found = ended(process("run", "fedavg", *FAST, "--set", "local.lrr=1"))
    assert found == (2, "", "error: fedavg: method 'sgd': unknown key 'lrr'; did you mean 'lr'?\n")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys\n"
        "from fedpace.cli import main\n"
        "sys.argv = ['fedpace', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    sys.exit('torch' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert "compare" in found.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_goes_on_as_if_never_stopped(fedpace, place, monkeypatch, number):
    modules = place.parent / "modules"
    modules.mkdir()
    (modules / "sluggish.py").write_text(
        "import os, time\n"
        "from torch import nn\n"
        "class Sluggish(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        time.sleep(float(os.environ.get('PAUSE', 0)))\n"
        "        return self.layer(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(modules)
    arguments = ["run", "fedavg", *SHORT, "--model", "sluggish:Sluggish", "--rounds", "12"]
    child = process(*arguments, "--out", "stopped", PAUSE="0.05", PYTHONPATH=with_modules(modules))
    assert until(lambda: rounds_of("stopped") >= 2 or child.poll() is not None, 120)
    child.send_signal(number)
    found = ended(child)
    assert found.code == 128 + number
    assert found.err == "stopped; finished rounds are kept: the same command goes on (run: with --resume)\n"
    assert 2 <= len(losses("stopped")) < 12
    for folder in ("stopped", "straight"):
        assert fedpace(*arguments, "--out", folder, "--resume").code == 0
    assert losses("stopped") == losses("straight")
    models = [(place / folder / "model.safetensors").read_bytes() for folder in ("stopped", "straight")]
    assert models[0] == models[1]


@has_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_no_run_of_a_comparison_outlives_it(place, number):
    endless = ["--seeds", "0", *LINEAR, *SHORT, "--rounds", "1000000", "--workers", "2", "--out", "runs"]
    child = process("compare", "fedavg", "gma", *endless)
    assert until(lambda: min(map(rounds_of, ("runs/fedavg-seed0", "runs/gma-seed0"))) > 0, 120)
    workers = children(child.pid)
    assert len(workers) == 2
    child.send_signal(number)
    assert ended(child).code == (-signal.SIGKILL if number == signal.SIGKILL else 129)
    assert until(lambda: not any(map(alive, workers)))


def test_compare_writes_a_report_and_report_reads_folders_of_runs(fedpace, tmp_path):
    fast = ["--model", "linear", "--rounds", "2", "--set", "local.max_steps=1", "--workers", "1"]
    code, out, _ = fedpace("compare", "fedavg", "gma", "--seeds", "0,1", *fast, "--out", tmp_path / "runs")
    assert code == 0
    page = tmp_path / "runs" / "report.html"
    assert str(page) in out
    assert page.stat().st_size > 1_000_000
    code, out, _ = fedpace("report", tmp_path / "runs", "--out", tmp_path / "mine.html", "--title", "Mine & more")
    assert (code, out.strip()) == (0, f"wrote: {tmp_path / 'mine.html'}")
    text = (tmp_path / "mine.html").read_text()
    assert "<title>Mine &amp; more</title>" in text
    assert "<b>2</b> methods" in text
    code, _, err = fedpace("report", tmp_path)
    assert code == 2
    assert "neither a run folder" in err


def test_the_package_can_be_run_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "fedpace", "list", "tasks"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "next_token" in done.stdout
