"""Files that strangers wrote: each ends in one line, runs nothing, stays in its folder, and takes little memory."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedpace
from fedpace.cli import app
from fedpace.core import FedpaceError
from fedpace.experiments import attack_membership, load_config

RUNS_CODE = "subprocess:getoutput"
SHORT = ["--model", "linear", "--rounds", "1", "--set", "executor=serial", "--set", "local.max_steps=1"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The working folder, alone with what a stranger sent."""
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def fedpace_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """The one line in which a command ends."""
    found = fedpace_command(*arguments)
    assert isinstance(found.exception, FedpaceError), found.exception or found.output
    message = str(found.exception)
    assert message.isprintable()
    return message


# Code.

PRESETS = {
    "model": f'[model]\nname = "{RUNS_CODE}"\ncmd = "touch owned"',
    "model by its name": f'model = "{RUNS_CODE}"',
    "data": 'data.source = "evil:Source"',
    "option of data": 'data.options.name = "evil:Source"',
    "partition": 'data.partition = "evil:Partition"',
    "augmentation": 'data.augment = ["flip", "evil:Augmentation"]',
    "task": 'task = "evil:Task"',
    "method": 'local = "evil:Method"',
    "rule": 'aggregate.rule = "evil:Rule"',
    "executor": 'executor.name = "evil:Executor"',
    "what is tuned": 'tunable."aggregate.rule".choices = ["mean", "evil:Rule"]',
}
COMMANDS = {
    "run": ["run", "shared.toml", "--rounds", "1"],
    "compare": ["compare", "fedavg", "shared.toml", "--seeds", "0"],
    "sweep": ["sweep", "shared.toml", "--grid", "rounds=1,2"],
}


@pytest.fixture
def evil(place, monkeypatch):
    """A module that leaves a file when it is imported."""
    (place / "evil.py").write_text("import pathlib\npathlib.Path('owned').write_text('')\n")
    monkeypatch.syspath_prepend(place)


@pytest.mark.parametrize("content", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.usefixtures("evil")
def test_a_preset_runs_no_code(content, command, place):
    (place / "shared.toml").write_text(content)
    assert "shared.toml: " in (message := refused(*command))
    assert "is code to run" in message
    assert "--trust" in message
    assert not Path("owned").exists()


@pytest.mark.usefixtures("evil")
def test_nor_does_the_one_that_a_preset_extends(place):
    (place / "below.toml").write_text('aggregate.rule = "evil:Rule"')
    (place / "shared.toml").write_text('extends = "below.toml"\naggregate.rule = "mean"')
    assert "below.toml: aggregate.rule = 'evil:Rule' is code to run" in refused("run", "shared.toml", *SHORT)
    with pytest.raises(FedpaceError, match="is code to run"):
        load_config("shared.toml")


def own_modules(place, monkeypatch):
    (place / "mine.py").write_text("from fedpace.aggregation import Mean\nclass Rule(Mean):\n    'Mine.'\n")
    monkeypatch.syspath_prepend(place)


def test_whoever_trusts_a_preset_says_so(place, monkeypatch):
    own_modules(place, monkeypatch)
    (place / "shared.toml").write_text('aggregate.rule = "mine:Rule"')
    assert fedpace_command("run", "shared.toml", *SHORT, "--out", "trusted", "--trust").exit_code == 0
    assert json.loads(Path("trusted/run.json").read_text())["config"]["aggregate"]["rule"] == {"name": "mine:Rule"}
    with fedpace.trusted_files():
        load_config("shared.toml")
    refused("run", "shared.toml", *SHORT)  # trust ends with the command


def test_what_is_typed_is_trusted(place, monkeypatch):
    own_modules(place, monkeypatch)
    typed = ["run", "fedavg", *SHORT, "--set", "aggregate.rule=mine:Rule", "--out", "typed"]
    assert fedpace_command(*typed).exit_code == 0
    assert fedpace_command(*typed, "--resume").exit_code == 0


SOMEWHERE_IN_A_RUN = {
    "model": {"model": {"name": RUNS_CODE, "cmd": "touch owned"}},
    "rule": {"aggregate": {"rule": {"name": "evil:Rule"}}},
    "data": {"data": {"source": "evil:Source"}},
    "attack": {"attack": {"name": "evil:Attack"}, "attackers": 0.2},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An ordinary run."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    assert fedpace_command("run", "fedavg", *SHORT, "--out", folder).exit_code == 0
    return folder


@pytest.fixture
def shared(run, place):
    """Its folder as a stranger sends it, with other settings in ``run.json``."""

    def changed(**settings):
        for file in ("run.json", "rounds.jsonl", "model.safetensors"):
            (place / "sent").mkdir(exist_ok=True)
            (place / "sent" / file).write_bytes((run / file).read_bytes())
        description = json.loads((run / "run.json").read_text())
        description["config"] |= settings
        (place / "sent" / "run.json").write_text(json.dumps(description))
        return place / "sent"

    return changed


@pytest.mark.parametrize("settings", SOMEWHERE_IN_A_RUN.values(), ids=SOMEWHERE_IN_A_RUN)
@pytest.mark.usefixtures("evil")
def test_a_run_folder_runs_no_code(settings, shared):
    folder = shared(**settings)
    for command in (["attack", "membership", folder], ["attack", "byzantine", folder]):
        assert "is code to run" in refused(*command)
    assert "is code to run" in refused("run", "fedavg", *SHORT, "--out", folder, "--resume")
    with pytest.raises(FedpaceError, match="is code to run"):
        attack_membership(folder)
    for command in (["show", folder], ["show", folder, "--json"], ["report", folder]):
        assert fedpace_command(*command).exit_code == 0
    assert not Path("owned").exists()


@pytest.mark.usefixtures("evil")
def test_how_a_run_was_executed_is_nothing_to_its_readers(shared):
    folder = shared(executor={"name": "evil:Executor"}, tunable={"local.lr": {"choices": ["evil:Rule", "b"]}})
    assert fedpace_command("attack", "byzantine", folder).exit_code == 0
    assert fedpace_command("run", "fedavg", *SHORT, "--out", folder, "--resume").exit_code == 0
    assert not Path("owned").exists()


# Paths.


@pytest.mark.parametrize(
    "name", ["../../../escaped", "/tmp/escaped", "..", "a/../../b", "\\u0000", "x" * 5000, ".hidden"]
)
def test_a_name_stays_in_the_folder_of_runs(name, place):
    (place / "shared.toml").write_text(f'method = "{name}"\n')
    found = fedpace_command("run", "shared.toml", *SHORT)
    assert found.exit_code == 0, found.exception
    (folder,) = (place / "runs").iterdir()
    assert not folder.name.startswith(".")
    assert (folder / "model.safetensors").exists()
    assert {path.name for path in place.iterdir()} == {"shared.toml", "runs"}
