"""The comparison with other frameworks: everybody does the same work, and its tables say what was measured."""

import importlib
import io
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from benchmarks import peers
from benchmarks.contest import bare, environment, ours, setups, stacked, tables
from benchmarks.contest.gate import Finished
from benchmarks.contest.process import Contestant
from benchmarks.contest.setups import Job, SetUp
from benchmarks.contest.tables import Row
from rich.console import Console
from torch import nn

BENCHMARKS = Path(peers.__file__).parent
ROUNDS = 2
HELPERS = {"byzfl_rules": "byzfl", "programs": "memory"}  # what others import; the rest are commands


class Counted(nn.Linear):
    """Counts how often any copy of it is called."""

    calls = 0

    def forward(self, inputs):
        type(self).calls += 1
        return super().forward(inputs)


def network():
    return Counted(60, setups.CLASSES)


def named(name: str) -> SetUp:
    return next(one for one in setups.SET_UPS if one.name == name)


@pytest.fixture
def job(tmp_path):
    """Six clients of two batches, half of them a round."""
    tiny = replace(named("D-mlp"), clients=6, examples=4, batch=2, cohort=3, stacked=3, repeats=1, network=network)
    setups.write_data(tiny, tmp_path)
    return Job(tiny, tmp_path)


def steps(contestant, job) -> int:
    """How often the model is called in some rounds."""
    Counted.calls, begun = 0, 0

    def gate():
        nonlocal begun
        begun += 1
        if begun > ROUNDS:
            raise Finished

    with pytest.raises(Finished):
        contestant.run(job, gate)
    return Counted.calls


def test_all_take_the_same_number_of_steps(job):
    wanted = ROUNDS * job.set_up.cohort * job.set_up.examples // job.set_up.batch
    assert steps(bare, job) == steps(ours, job) == wanted
    assert steps(bare, replace(job, option="compute")) == wanted
    assert steps(stacked, job) == wanted / job.set_up.stacked  # as many clients at a time


def test_images_are_the_same_for_all(tmp_path):
    images = replace(named("B"), clients=2, examples=3)
    setups.write_data(images, tmp_path)
    stored, labels = Job(images, tmp_path).stored()
    floats, same = Job(images, tmp_path).tensors()
    assert (labels == same.numpy()).all()
    expected = stored[:3].transpose(0, 3, 1, 2) / 127.5 - 1
    assert floats[:3].numpy() == pytest.approx(expected, abs=1e-6)


def test_who_cannot_take_part_is_named_and_the_others_go_on(job):
    said = Console(file=io.StringIO(), width=200)
    importable = partial(nn.Linear, 60, setups.CLASSES)
    real = replace(job, set_up=replace(job.set_up, network=importable))
    rows = peers.measured(real, [Contestant("absent", "absent"), peers.STACKED], sys.executable, said)
    assert "absent takes no part in D-mlp: ModuleNotFoundError" in said.file.getvalue()
    assert [row.label for row in rows] == [peers.STACKED.label]
    assert len(rows[0].seconds) == 1
    assert rows[0].seconds[0] > 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("set_up", setups.SET_UPS, ids=lambda one: one.name)
def test_contestants_have_a_file_and_labels_of_their_own(set_up, workers):
    found = peers.contestants(set_up, workers)
    assert all((Path(setups.__file__).parent / f"{one.module}.py").exists() for one in found)
    assert len({one.label for one in found}) == len(found)
    assert set_up.examples % set_up.batch == 0  # or some would take a step more


def test_ratios_are_medians_over_rounds():
    rows = [
        Row("fedpace", [1.0, 4.0, 3.0]),
        Row(tables.BARE, [1.0, 2.0, 1.0]),
        Row("slow", [8.0, 8.0, 8.0], is_peer=True),
        Row("fast", [2.0, 2.0, 2.0], is_peer=True),
    ]
    lines = tables.cells(named("A"), rows)
    assert lines[0] == ["fedpace", "3", "2.00 (1.50–2.50)", "1.50 (1.00–1.75)"]
    assert [line[3] for line in lines[1:]] == ["0.50 (0.50–0.75)", "4.00 (4.00–4.00)", "1"]


def test_what_is_beyond_compute_leaves_compute_out():
    rows = [Row("fedpace", [1.5, 1.6]), Row(tables.BARE, [1.2, 1.3]), Row(tables.COMPUTE, [1.0, 1.1])]
    lines = tables.cells(named("E"), rows)
    assert lines == [
        ["fedpace", "50", "2.50 (2.50–2.50)", ""],
        [tables.BARE, "20", "1", ""],
        [tables.COMPUTE, "(105 in all)", "", ""],
    ]


def test_a_page_keeps_what_was_not_measured(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before.\n")
    tables.put(page, "A", "old")
    tables.put(page, "B", "other")
    tables.put(page, "A", r"new \1")
    assert page.read_text() == (
        "Before.\n"
        "<!-- measured: A -->\nnew \\1\n<!-- end of measured -->\n"
        "<!-- measured: B -->\nother\n<!-- end of measured -->\n"
    )


def test_a_peer_that_cannot_be_installed_is_named_and_torch_is_kept(tmp_path, monkeypatch, capsys):
    asked = []

    def run(python, *arguments):
        asked.append(arguments)
        if environment.PEERS["blazefl"] in arguments:
            raise subprocess.CalledProcessError(1, "pip", stderr="Looking\nERROR: it needs another Python\n")
        installed = {"torch": "0.1", "flwr": "1.41.0"}
        return json.dumps(installed) if arguments[0] == "-c" else ""

    monkeypatch.setattr(environment, "_run", run)
    found = environment.prepared(tmp_path / "new", python="python3")
    assert capsys.readouterr().out == "blazefl takes no part: ERROR: it needs another Python\n"
    assert found.python == str(tmp_path / "new" / "bin" / "python")
    monkeypatch.setattr(environment, "_run", lambda *_: "abc123\n")
    assert str(found) == "fedpace abc123, torch 0.1, flwr 1.41.0"
    assert asked[0] == ("-m", "venv", str(tmp_path / "new"))
    installs = [arguments[5:] for arguments in asked if "install" in arguments]
    torch, fedpace, *peers = installs
    assert torch[0].startswith("torch==")
    assert fedpace[-1] == str(environment.ROOT)
    assert sorted(peers) == sorted((*torch, environment.PEERS[name]) for name in ("pfl", "blazefl"))  # flwr is there


def test_without_an_environment_those_that_are_installed_here_take_part(tmp_path, capsys):
    found = environment.prepared(tmp_path / "new", python=str(tmp_path / "no python"))
    assert found.python == sys.executable
    assert "torch" in found.versions
    assert "those that are installed here take part" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_benchmark_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # they are run as scripts, too
    assert callable(getattr(importlib.import_module(f"benchmarks.{name}"), HELPERS.get(name, "main")))
