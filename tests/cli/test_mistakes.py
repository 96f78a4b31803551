import sys

import pytest

from fedpace.core import ConfigError, FedpaceError

from ..data.helpers import png, write_parquet
from .helpers import FAST, LINEAR, SHORT, snapshot

# What a user can get wrong: one line, exit code 2, nothing written.

BAD = {
    "preset": (["run", "fedavgg"], "unknown preset 'fedavgg'; did you mean 'fedavg'?"),
    "preset that looks like markup": (["run", "[/foo]"], "unknown preset '[/foo]'"),
    "method": (["compare", "fedavg", "gmaa"], "unknown preset 'gmaa'; did you mean 'gma'?"),
    "swept preset": (["sweep", "gmaa", "--grid", "rounds=1,2"], "unknown preset 'gmaa'; did you mean 'gma'?"),
    "key": (["run", "fedavg", "--set", "lcal.lr=1"], "fedavg: unknown key 'lcal'; did you mean 'local'?"),
    "key of another table": (["run", "fedavg", "--set", "lr=0.1"], "fedavg: unknown key 'lr'; did you mean 'local.lr'"),
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
    "model that raises": (
        ["run", "fedavg", "--model", "mine:failing"],
        "model 'mine:failing' cannot be built for shape (1, 8, 8): ValueError: no width […] fits",
    ),
    "model of another size": (
        ["run", "fedavg", "--model", "mine:seven"],
        "output size must match the data's 10 classes",
    ),
    "model of another size to compare": (["compare", "fedavg", "--model", "mine:seven"], "fedavg · seed 0: model"),
    "rule that is none": (["run", "fedavg", "--set", "aggregate.rule=json:dumps"], "json:dumps"),
    "seeds": (["compare", "fedavg", "--seeds", "a,b"], "--seeds a,b: expected whole numbers separated by commas"),
    "seeds backwards": (["compare", "fedavg", "--seeds", "0,5-3"], "expected a range of 1 to 10000 seeds, found '5-3'"),
    "a seed below 0": (["compare", "fedavg", "--seeds", "-1"], "--seeds -1: expected whole numbers"),
    "too many seeds": (["sweep", "fedavg", "--grid", "rounds=1", "--seeds", "0-99999"], "found '0-99999'"),
    "tuning seeds": (["compare", "fedavg", "--tuning-seeds", "x"], "--tuning-seeds x: expected whole numbers"),
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
    "executor": (
        ["run", "fedavg", "--set", "executor=gpu"],
        "unknown executor 'gpu'; known: auto, processes, serial, vectorised",
    ),
    "tracker": (
        ["run", "fedavg", "--set", 'track=["wandb"]'],
        "input should be 'tensorboard' or 'mlflow', found 'wandb'",
    ),
    "run folder that is a file": (["run", "fedavg", *FAST, "--out", "bad.toml"], "bad.toml: cannot be written"),
    "no run": (["show", "images"], "images: is not a run folder (no run.json)"),
    "neither run nor preset": (["show", "fedpca"], "fedpca: is not a run folder (no run.json), and not a preset; did"),
    "key to explain": (["config", "local.lrr"], "unknown key 'local.lrr'; did you mean 'local.lr'"),
    "dry run of a mistake": (["run", "fedavg", "--model", "linea", "--dry-run"], "did you mean 'linear'?"),
    "dry comparison of a mistake": (["compare", "fedavg", "--clients", "5000", "--dry-run"], "5000 clients with"),
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
        "def failing():\n"
        "    raise ValueError(f'no width {np.zeros((2, 3))} fits')\n"
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


def test_a_module_in_the_current_folder_is_found_and_so_is_what_it_imports(fedpace, place, monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(place))])
    (place / "helper.py").write_text("SIZE = 64\n")
    (place / "beside.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    from helper import SIZE\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 10))\n"
    )
    found = fedpace("run", "fedavg", *SHORT, "--rounds", "1", "--model", "beside:build", "--out", "mine", "--json")
    for name in ("beside", "helper"):
        sys.modules.pop(name, None)
    assert (found.code, found.err) == (0, "")
