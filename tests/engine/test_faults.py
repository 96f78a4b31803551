"""Whatever happens at whichever write of a run: what is resumed is the run that nothing happened to."""

import shutil
from contextlib import suppress
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedpace.core import RunFolderError
from fedpace.data import load
from fedpace.engine import (
    Asynchronous,
    Cohort,
    LognormalSpeeds,
    Measuring,
    Plan,
    Processes,
    Serial,
    read_rounds,
    train,
)
from fedpace.methods import FedRep, LocalSGD, Scaffold
from fedpace.models import build
from tests.engine.faults import Killed, counted, failing
from tests.records import untimed

ROUNDS = 3
STEP = {"max_steps": 1, "batch": 8}


@cache
def federation():
    return load("digits").partition("iid", clients=3, test_share=0.02, seed=0)


def engine_run(folder, resume=False, model="linear", **changes):
    settings = {"rounds": ROUNDS, "local": LocalSGD(**STEP), "executor": Serial(), "cohort": Cohort(number=2)}
    plan = Plan(**{**settings, "measuring": Measuring(every=ROUNDS, per_client=0), **changes})
    train(build(model, (1, 8, 8), 10, 0), federation(), plan, folder=folder, resume=resume)


def flower_run(folder, resume=False):
    """On nodes that forget nothing as long as the server's disk is as it is."""
    pytest.importorskip("flwr")
    from fedpace.experiments import load_config
    from fedpace.experiments.engines import node_of, run_on_grid
    from fedpace.flower import InProcessGrid, client_app

    settings = {"model": "linear", "rounds": ROUNDS, "executor": "serial", "measuring.per_client": 0}
    settings |= {"data.partition.clients": 2, "local.max_steps": 1, "data.partition.limit": 20}
    config = load_config("scaffold", settings)
    grid = _GRIDS.setdefault(folder, InProcessGrid(client_app(lambda context: node_of(config)), 2))
    run_on_grid(config, grid, out=folder, resume=resume)


_GRIDS = {}
RUNS = {
    "serial": engine_run,
    "for a power failure": partial(engine_run, durability="power"),
    "processes": partial(engine_run, executor=Processes(workers=1)),
    "scaffold": partial(engine_run, local=Scaffold(**STEP)),
    "asynchronous": partial(
        engine_run,
        cohort=Cohort(),
        speeds=LognormalSpeeds(sigma=1),
        asynchronous=Asynchronous(buffer=1, concurrency=2),
    ),
    "fedrep": partial(engine_run, local=FedRep(**STEP), model="mlp"),
    "flower": flower_run,
}


def outcome(folder):
    return (folder / "model.safetensors").read_bytes(), untimed(read_rounds(folder))


@cache
def undisturbed(name):
    """What a run ends with, and the operations on the disk that it takes."""
    with TemporaryDirectory() as folder, counted() as operations:
        RUNS[name](Path(folder, "run"))
        return outcome(Path(folder, "run")), tuple(operations)


def test_a_run_of_three_rounds_writes_through_the_one_seam():
    """Two files to begin with, then a line and a checkpoint of two files each round, and two files at the end."""
    _, operations = undisturbed("serial")
    assert operations.count("append") == ROUNDS
    assert operations.count("save") == ROUNDS
    assert operations.count("write") == 2 + ROUNDS + 2
    assert operations.count("rename") == 2 + ROUNDS + 2
    assert "sync" not in operations
    assert undisturbed("for a power failure")[1].count("sync") > len(operations)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("serial", "killed"), ("scaffold", "killed"), *product(RUNS, ["killed in the midst", "full"])],
)
def test_after_a_fault_at_any_operation_resume_gives_the_undisturbed_run(name, fault, tmp_path):
    whole, operations = undisturbed(name)
    for number in range(len(operations)):
        folder = tmp_path / str(number)
        with failing(number, fault), pytest.raises(RunFolderError if fault == "full" else Killed):
            RUNS[name](folder)
        RUNS[name](folder, resume=True)
        assert outcome(folder) == whole, f"{fault} at {operations[number]}, operation {number}"


@pytest.mark.parametrize("name", ["serial", "scaffold"])
@pytest.mark.parametrize("later", [1, 3, 6])
def test_what_the_disk_lost_is_noticed(name, later, tmp_path):
    """Refused in one line where it was the description of the run or a line between others, done again otherwise."""
    whole, operations = undisturbed(name)
    refused = 0
    for number in range(len(operations)):
        folder = tmp_path / str(number)
        with failing(number, "lost", later), suppress(Killed, RunFolderError):
            RUNS[name](folder)
        try:
            RUNS[name](folder, resume=True)
        except RunFolderError:
            refused += 1
        else:
            assert outcome(folder) == whole, f"{operations[number]}, operation {number}"
    assert refused <= 5


@pytest.fixture(scope="module")
def half_way(tmp_path_factory):
    """A finished run whose last checkpoint is damaged, and a file that a killed process left: much to clean up."""
    folder = tmp_path_factory.mktemp("half") / "run"
    RUNS["scaffold"](folder)
    (folder / f"checkpoint/round-{ROUNDS - 1:05d}/state.safetensors").write_bytes(b"torn")
    (folder / ".run.json.writing-1").write_bytes(b"{")
    return folder


@pytest.mark.parametrize("fault", ["killed", "killed in the midst", "full"])
def test_a_fault_at_any_operation_of_a_resume_does_no_more_harm(half_way, fault, tmp_path):
    whole, _ = undisturbed("scaffold")
    with counted() as operations:
        RUNS["scaffold"](shutil.copytree(half_way, tmp_path / "whole"), resume=True)
    assert outcome(tmp_path / "whole") == whole
    assert not list((tmp_path / "whole").glob(".*.writing-*"))
    for number in range(len(operations)):
        folder = shutil.copytree(half_way, tmp_path / str(number))
        with failing(number, fault), pytest.raises(RunFolderError if fault == "full" else Killed):
            RUNS["scaffold"](folder, resume=True)
        RUNS["scaffold"](folder, resume=True)
        assert outcome(folder) == whole, f"{fault} at {operations[number]}, operation {number}"
