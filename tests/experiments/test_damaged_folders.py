"""A run folder that was damaged in any way gives what it always gave, or one line; never a traceback."""

import json
import shutil
from contextlib import suppress

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedpace.analysis import write_report
from fedpace.cli import app
from fedpace.core import FedpaceError, RunFolderError
from fedpace.engine import read_rounds, read_run
from fedpace.experiments import attack_membership, execute
from fedpace.experiments.reporting import read_runs
from tests.json_places import changed, places
from tests.records import untimed

from .helpers import fast_config

PARTITION = {"name": "iid", "clients": 3}
SETTINGS = {"data__partition": PARTITION, "data__size": None, "rounds": 3, "measuring__per_client": 5}
RUBBISH = b"\xff\xfe\x00\x9c{]\n" * 7
WRONG = (None, "x", {}, [], -1, 3.5, True, [[]], {"a": None}, "\ud800")


def config(seed=0):
    return fast_config(local={"name": "scaffold", "max_steps": 1}, seed=seed, **SETTINGS)


def resumed(folder):
    result = execute(config(), out=folder, resume=True)
    return (folder / "model.safetensors").read_bytes(), untimed(result.records), untimed(read_rounds(folder))


def shown(folder):
    found = CliRunner().invoke(app, ["show", str(folder)])
    if found.exception is not None:
        raise found.exception
    return found.stdout


def reported(folder):
    return write_report(read_runs([folder]), folder / "report.html").read_text()


def attacked(folder):
    return attack_membership(folder, examples=50, console=Console(quiet=True)).attack


ACTIONS = {"resume": resumed, "show": shown, "report": reported, "attack": attacked}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A finished run, and beside it one of another seed."""
    folder = tmp_path_factory.mktemp("origin")
    execute(config(), out=folder / "run")
    execute(config(seed=1), out=folder / "other")
    return folder


@pytest.fixture(scope="module")
def undisturbed(origin, tmp_path_factory):
    found = {}
    for name, act in ACTIONS.items():
        folder = tmp_path_factory.mktemp(name) / "run"
        found[name] = act(shutil.copytree(origin / "run", folder))
    return found


@pytest.fixture
def run(origin, tmp_path):
    return shutil.copytree(origin / "run", tmp_path / "run")


def check(folder, undisturbed, names=tuple(ACTIONS)):
    """Each action gives what it always gave, or one line that says where; those that were refused."""
    refused = set()
    for name in names:
        copy = folder.with_name(name) / "run"
        shutil.copytree(folder, copy)
        found, line = outcome(ACTIONS[name], copy)
        if line is None:
            assert found == undisturbed[name]
        else:
            assert str(copy) in line
            refused.add(name)
        shutil.rmtree(copy.parent)
    return refused


def outcome(act, folder):
    """What an action gives, or the line with which it refuses; anything else would be a traceback."""
    try:
        return act(folder), None
    except FedpaceError as error:
        return None, str(error)  # which is one line by construction


DAMAGES = {
    "missing": lambda path, other: path.unlink(),
    "empty": lambda path, other: path.write_bytes(b""),
    "half": lambda path, other: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one byte short": lambda path, other: path.write_bytes(path.read_bytes()[:-1]),
    "one bit": lambda path, other: path.write_bytes(path.read_bytes()[:-9] + b"#" + path.read_bytes()[-8:]),
    "twice": lambda path, other: path.write_bytes(path.read_bytes() * 2),
    "rubbish": lambda path, other: path.write_bytes(RUBBISH),
    "rubbish at the end": lambda path, other: path.write_bytes(path.read_bytes() + RUBBISH),
    "another run's": lambda path, other: path.write_bytes(other.read_bytes()),
    "a folder": lambda path, other: (path.unlink(), path.mkdir()),
}
FILES = (
    "run.json",
    "rounds.jsonl",
    "model.safetensors",
    "checkpoint/round-00002/state.json",
    "checkpoint/round-00002/state.safetensors",
    "checkpoint/round-00001/state.json",
    "clients/00001-00002.safetensors",
)


def test_all_files_of_a_run_are_tried(origin):
    folder = origin / "run"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    alike = {"checkpoint/round-00001/state.safetensors"}
    assert files - set(FILES) - alike == {name for name in files if name.startswith("clients/")} - set(FILES)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file(run, origin, undisturbed, name, damage):
    DAMAGES[damage](run / name, origin / "other" / name)
    refused = check(run, undisturbed)
    if name.startswith(("checkpoint/", "clients/")):  # only whoever goes on needs them
        assert refused <= {"resume"}
    elif name == "run.json" and damage in ("missing", "empty", "half", "twice", "rubbish", "a folder"):
        assert refused == set(ACTIONS)
    elif name == "rounds.jsonl" and damage != "one byte short":
        assert {"show", "report"} <= refused


@pytest.mark.parametrize("part", ["checkpoint", "clients"])
@pytest.mark.parametrize("damage", ["missing", "a file", "another run's"])
def test_a_damaged_folder(run, origin, undisturbed, part, damage):
    shutil.rmtree(run / part)
    if damage == "a file":
        (run / part).write_bytes(b"")
    elif damage == "another run's":
        shutil.copytree(origin / "other" / part, run / part)
    assert check(run, undisturbed) <= {"resume"}


def test_the_checkpoint_of_another_seed_is_never_gone_on_with(run, origin, undisturbed):
    newest = "checkpoint/round-00002"
    shutil.rmtree(run / newest)
    shutil.copytree(origin / "other" / newest, run / newest)
    assert check(run, undisturbed) == {"resume"}


def without(lines, number):
    return [*lines[:number], *lines[number + 1 :]]


LINES = {
    "lost": without,
    "doubled": lambda lines, number: [*lines[: number + 1], *lines[number:]],
    "half": lambda lines, number: [*lines[:number], lines[number][:99] + "\n", *lines[number + 1 :]],
    "first": lambda lines, number: [lines[number], *without(lines, number)],
    "empty": lambda lines, number: [*lines[:number], "\n", *lines[number:]],
    "another figure": lambda lines, number: [
        line.replace('"train_loss":', '"train_loss":1') if at == number else line for at, line in enumerate(lines)
    ],
    "all after it lost": lambda lines, number: lines[:number],
}  # fmt: skip


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", LINES)
def test_lines_of_the_history(run, undisturbed, damage, number, finished):
    file = run / "rounds.jsonl"
    before = file.read_text().splitlines(keepends=True)
    after = LINES[damage](before, number)
    file.write_text("".join(after))
    if finished:
        refused = check(run, undisturbed)
        assert before == after or {"show", "report"} <= refused
    else:
        forget_the_end(run)
        (run / "model.safetensors").unlink()
        check(run, undisturbed, ["resume"])


def forget_the_end(run):
    """As if the run were not over, or of a version that wrote no digests."""
    content = json.loads((run / "run.json").read_text())
    del content["finished"]
    (run / "run.json").write_text(json.dumps(content))


def test_wrong_types_in_a_line_are_refused_or_harmless(run):
    """Without digests: what passes as a record can be shown and reported."""
    forget_the_end(run)
    file = run / "rounds.jsonl"
    first, line, last = file.read_text().splitlines(keepends=True)
    content, refused, accepted = json.loads(line), 0, []
    for path in filter(None, places(content)):
        for value in WRONG:
            file.write_text(first + json.dumps(changed(content, path, value)) + "\n" + last)
            _, refusal = outcome(read_rounds, run)
            if refusal is None:
                accepted.append(file.read_text())
            else:
                assert "rounds.jsonl: line 2 is damaged (" in refusal
                refused += 1
    assert refused > 3 * len(accepted)
    for text in accepted:
        file.write_text(text)
        shown(run)


def test_reports_of_what_passes_as_a_record(run):
    """As many fields at once as possible, because a report takes its time."""
    forget_the_end(run)
    file = run / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    for value in (None, {}, [], 0):
        content = json.loads(lines[1])
        for path in filter(None, places(content)):
            with suppress(RunFolderError, KeyError, IndexError, TypeError, AttributeError):
                file.write_text(lines[0] + json.dumps(changed(content, path, value)) + "\n" + lines[2])
                read_rounds(run)
                content = changed(content, path, value)
        file.write_text(lines[0] + json.dumps(content) + "\n" + lines[2])
        reported(run)


def test_wrong_types_in_the_description_are_refused_or_harmless(run):
    file = run / "run.json"
    content = json.loads(file.read_text())
    for path in filter(None, places(content)):
        for value in WRONG if path[0] != "config" else WRONG[:2] if len(path) < 3 else ():
            file.write_text(json.dumps(changed(content, path, value)))
            for act in (shown, lambda folder: read_runs([folder])):
                _, refusal = outcome(act, run)
                assert refusal is None or str(run) in refusal


@pytest.mark.parametrize("key", ["seed", "data", "parameters", "clients", "config", "finished", "metric", "attackers"])
@pytest.mark.parametrize("value", [None, 7, "x", {}])
def test_a_description_that_was_altered_never_trains_another_model(run, undisturbed, key, value):
    content = read_run(run)
    content[key] = value
    (run / "run.json").write_text(json.dumps(content))
    (run / "checkpoint/round-00002/state.json").unlink()  # there is something to train
    check(run, undisturbed, ["resume", "attack"])


def test_a_setting_that_was_altered_is_named(run):
    content = read_run(run)
    content["config"]["local"]["lr"] = 0.5
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match=r"holds a run with local.lr = 0.5, this one has"):
        resumed(run)


def test_a_folder_that_lost_its_description_is_not_begun_again(run):
    (run / "run.json").unlink()
    for resume in (True, False):
        with pytest.raises(RunFolderError, match=r"holds checkpoint, but no run.json to go with it; choose another"):
            execute(config(), out=run, resume=resume)
    assert (run / "model.safetensors").exists()
