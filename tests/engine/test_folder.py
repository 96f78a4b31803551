import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load, save

from fedpace.core import RoundRecord, RunFolderError
from fedpace.engine import RunFolder, read_metric, read_model, read_rounds, read_run

HOLDER = """
import pathlib, sys
from fedpace.engine import RunFolder
with RunFolder(pathlib.Path(sys.argv[1])).claimed():
    print("claimed", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_work_on_one_run(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "claimed\n"
        with (
            pytest.raises(RunFolderError, match="another process is at work on this run"),
            RunFolder(tmp_path).claimed(),
        ):
            pass
        other.stdin.close()
        other.wait(timeout=60)
    with RunFolder(tmp_path).claimed():
        pass


DESCRIPTION = {"config": {"seed": 0, "local": {"lr": 0.1}, "track": []}, "seed": 0, "data": "digest", "parameters": 4}


def state(number):
    return {"vector": torch.full((4,), float(number))}


def run(path, rounds=3):
    """A folder as a run leaves it."""
    folder = RunFolder(path)
    folder.create(DESCRIPTION)
    for number in range(rounds):
        folder.write_round(RoundRecord(round=number), state(number))
    folder.finish(state(rounds), ["a warning"])
    return folder


def test_a_finished_run_says_what_it_ended_with(tmp_path):
    assert run(tmp_path / "run").complete
    about = read_run(tmp_path / "run")
    assert about["warnings"] == ["a warning"]
    assert about["finished"]["rounds"] == 3
    assert len(read_rounds(tmp_path / "run")) == 3
    assert torch.equal(load(read_model(tmp_path / "run"))["vector"], state(3)["vector"])


def test_a_run_goes_on_after_its_last_checkpoint(tmp_path):
    run(tmp_path / "run")
    records, found = RunFolder(tmp_path / "run").go_on()
    assert [record.round for record in records] == [0, 1, 2]
    assert torch.equal(found["vector"], state(2)["vector"])
    assert RunFolder(tmp_path / "run").complete  # nothing has to be done again


def test_a_finished_run_of_which_rounds_are_done_again_is_finished_no_more(tmp_path):
    run(tmp_path / "run")
    (tmp_path / "run/checkpoint/round-00002/state.json").unlink()
    folder = RunFolder(tmp_path / "run")
    records, found = folder.go_on()
    assert len(records) == len(read_rounds(tmp_path / "run")) == 2
    assert torch.equal(found["vector"], state(1)["vector"])
    assert not folder.complete
    assert "finished" not in read_run(tmp_path / "run")
    folder.write_round(RoundRecord(round=2), state(2))
    folder.finish(state(3), [])
    assert read_run(tmp_path / "run")["finished"]["rounds"] == 3


def test_a_run_without_a_checkpoint_begins_again(tmp_path, caplog):
    run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoint")
    assert RunFolder(tmp_path / "run").go_on() == ([], None)
    assert "no checkpoint is left; the run begins again" in caplog.text


def test_rounds_of_a_run_that_has_not_begun_are_none(tmp_path):
    assert read_rounds(tmp_path / "none") == []


def test_the_history_of_a_finished_run_is_whole_or_refused(tmp_path):
    run(tmp_path / "run")
    file = tmp_path / "run/rounds.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(RunFolderError, match=r"rounds.jsonl: is not what this run wrote in 3 rounds; put it back"):
        read_rounds(tmp_path / "run")


def test_a_client_that_the_run_does_not_have_is_one_line(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({**DESCRIPTION, "clients": 3})
    folder.write_round(RoundRecord(round=0, cohort=[1, 3]), state(0))
    with pytest.raises(RunFolderError, match=r"rounds.jsonl: line 1 is damaged \(client 3 of 3\)"):
        read_rounds(tmp_path / "run")


def test_another_model_is_refused(tmp_path):
    run(tmp_path / "run")
    (tmp_path / "run/model.safetensors").write_bytes(save(state(7)))
    with pytest.raises(RunFolderError, match=r"model.safetensors: is not the model that this run ended with"):
        read_model(tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"model.safetensors: cannot be read \(No such file or directory\)"):
        read_model(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "holds a run with seed = 0, this one has 1; choose another --out"),
        ({"data": "other"}, "holds a run on other data; choose another --out"),
        ({"config": {**DESCRIPTION["config"], "local": {"lr": 0.2}}}, "with local.lr = 0.1, this one has 0.2"),
        ({"config": {**DESCRIPTION["config"], "seed": 3}}, "holds a run with seed = 0, this one has 3"),
        ({"parameters": 5}, "holds a run with parameters = 4, this one has 5"),
    ],
)  # fmt: skip
def test_another_run_is_refused(tmp_path, change, message):
    run(tmp_path / "run")
    with pytest.raises(RunFolderError, match=message):
        RunFolder(tmp_path / "run").check({**DESCRIPTION, **change})


def test_settings_that_change_no_result_may_change(tmp_path):
    run(tmp_path / "run")
    config = {**DESCRIPTION["config"], "track": ["tensorboard"], "durability": "power", "executor": "serial"}
    RunFolder(tmp_path / "run").check({**DESCRIPTION, "config": config})
    about = read_run(tmp_path / "run")
    about["config"]["track"] = ["mlflow"]
    RunFolder(tmp_path / "run").write_json("run.json", about)
    assert len(RunFolder(tmp_path / "run").go_on()[0]) == 3  # the checkpoint belongs to it all the same


@pytest.mark.parametrize("part", ["checkpoint", "clients", "model.safetensors", "rounds.jsonl"])
def test_a_part_of_a_run_without_its_description_is_not_written_over(tmp_path, part):
    run(tmp_path / "run").states.keep(0, 0, state(0))
    for path in (tmp_path / "run").iterdir():
        if path.name != part:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(RunFolderError, match=f"holds {part}, but no run.json to go with it; choose another --out"):
        RunFolder(tmp_path / "run").create(DESCRIPTION)
    assert (tmp_path / "run" / part).exists()


def test_a_run_that_was_killed_before_its_description_was_written_begins(tmp_path):
    (tmp_path / "rounds.jsonl").touch()
    RunFolder(tmp_path).create(DESCRIPTION)
    assert read_rounds(tmp_path) == []


def test_what_a_killed_process_left_is_cleared_when_the_folder_is_claimed(tmp_path):
    run(tmp_path)
    (tmp_path / ".run.json.writing-1").touch()
    (tmp_path / "checkpoint/.round-00003.writing-1").mkdir()
    with RunFolder(tmp_path).claimed():
        assert not list(tmp_path.rglob("*.writing-*"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged .invalid json: "),
        ("{", "is damaged .invalid json: "),
        ("\x00", "is damaged .invalid json: "),
        ("[" * 100_000, "is damaged .invalid json: "),
        ('{"config": {}} {}', "is damaged .invalid json: "),
        ('{"config": {}, "seed": NaN}', "is damaged .seed: "),
        ('{"config": {}, "seed": ' + "9" * 5000 + "}", "is damaged .invalid json: "),
        ("[]", "is damaged"),
        ("{}", "is damaged .config: field required"),
        ('{"config": []}', "is damaged .config: "),
        ('{"config": {"local": "x"}}', "is damaged .config.local: "),
        ('{"config": {"privacy": "x"}}', "is damaged .config.privacy: "),
        ('{"config": {"dampen": "x"}}', "is damaged .config.dampen: "),
        ('{"config": {"cohort": {"late": "x"}}}', "is damaged .config.cohort.late: "),
        ('{"config": {}, "seed": "0"}', "is damaged .seed: input should be a valid integer"),
        ('{"config": {}, "warnings": "none"}', "is damaged .warnings: "),
        ('{"config": {}, "metric": {"label": "x"}}', "is damaged .metric"),
        ('{"config": {}, "metric": {"name": "x", "rises": 1}}', "is damaged .metric.rises: "),
        ('{"config": {}, "finished": {"rounds": 3}}', "is damaged .finished.history: "),
        ('{"config": {}, "clients": 2, "client_names": ["a"]}', "is damaged .expected names of 2 clients, found 1"),
    ],
)
def test_a_damaged_description_is_one_line(tmp_path, content, message):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match=f"run.json: {message}"):
        read_run(tmp_path)


def test_the_description_of_an_older_version_is_read(tmp_path):
    (tmp_path / "run.json").write_text('{"config": {"method": "fedavg", "gone": [1]}, "seed": 0}')
    assert read_metric(read_run(tmp_path)).name == "accuracy"


def test_a_run_with_an_infinite_setting_goes_on(tmp_path):
    endless = {**DESCRIPTION, "config": {"guard": {"clip": float("inf")}}, "privacy": {"epsilon": float("inf")}}
    folder = RunFolder(tmp_path)
    folder.create(endless)
    folder.write_round(RoundRecord(round=0), state(0))
    RunFolder(tmp_path).check(endless)
    assert len(RunFolder(tmp_path).go_on()[0]) == 1
