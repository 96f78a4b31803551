import errno
import json

import pytest
import torch

from fedpace.core import Disk, RunFolderError, Writer
from fedpace.engine.checkpoint import Checkpoints, Place

RUN = "the digest of a run"


def state(value: float) -> dict[str, torch.Tensor]:
    return {"vector": torch.full((4,), value), "mask": torch.tensor([True, False])}


def past(rounds: int) -> str:
    return f"digest of {rounds} rounds"


def place(number: int, run: str = RUN) -> Place:
    return Place(run, number + 1, past(number + 1))


def checkpoints(folder, numbers=()) -> Checkpoints:
    made = Checkpoints(folder, Writer())
    for number in numbers:
        made.write(place(number), state(float(number)))
    return made


def last(made, run=RUN, history=past, whole=bool):
    """Number and state of the checkpoint with which a run goes on."""
    found = made.last(run, history, whole)
    return None if found is None else (found[0].rounds - 1, found[1])


def test_the_newest_checkpoint_is_read_back_and_two_are_kept(tmp_path):
    number, tensors = last(checkpoints(tmp_path, range(4)))
    assert number == 3
    assert torch.equal(tensors["vector"], torch.full((4,), 3.0))
    assert tensors["mask"].dtype == torch.bool
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-00002", "round-00003"]


def test_the_newest_is_told_by_its_number(tmp_path):
    made = checkpoints(tmp_path, [99_999, 100_000, 100_001])
    assert last(made)[0] == 100_001
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-100000", "round-100001"]


def test_nothing_written_means_no_checkpoint(tmp_path):
    assert last(checkpoints(tmp_path / "none")) is None


def rewritten(change):
    def damage(tensors, label):
        content = json.loads(label.read_text())
        change(content)
        label.write_text(json.dumps(content))

    return damage


DAMAGES = {
    "tensors cut short": lambda tensors, label: tensors.write_bytes(tensors.read_bytes()[:-3]),
    "a bit flipped": lambda tensors, label: tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x7f"),
    "no tensors": lambda tensors, label: tensors.unlink(),
    "tensors of nothing": lambda tensors, label: tensors.write_bytes(b""),
    "a folder": lambda tensors, label: (tensors.unlink(), tensors.mkdir()),
    "no label": lambda tensors, label: label.unlink(),
    "half a label": lambda tensors, label: label.write_text("{"),
    "no table": lambda tensors, label: label.write_text("3"),
    "binary": lambda tensors, label: label.write_bytes(b"\xff\x00\xfe"),
    "round changed": rewritten(lambda content: content["place"].update(rounds=9)),
    "round moved": lambda tensors, label: tensors.parent.rename(tensors.parent.with_name("round-00002")),
    "history changed": rewritten(lambda content: content["place"].update(past=past(1))),
    "run changed": rewritten(lambda content: content["place"].update(run="another")),
    "digest lost": rewritten(lambda content: content.pop("digest")),
    "place lost": rewritten(lambda content: content.update(place=None)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage, caplog):
    made = checkpoints(tmp_path, [0, 1])
    damage(tmp_path / "round-00001/state.safetensors", tmp_path / "round-00001/state.json")
    assert last(made)[0] == 0
    assert "is damaged" in caplog.text
    assert len(caplog.messages) == 1


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    made = checkpoints(tmp_path, [0])
    made.write(place(1, run="another"), state(1.0))
    with pytest.raises(RunFolderError, match=r"round-00001: is a checkpoint of another run; remove it"):
        last(made)


@pytest.mark.parametrize("content", [{"round": 1, "sha256": "…"}, {"version": 3, "round": 1}])
def test_the_checkpoint_of_another_version_is_refused(tmp_path, content):
    made = checkpoints(tmp_path, [0, 1])
    (tmp_path / "round-00001/state.json").write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match=r"expected a checkpoint of version 2, found one of another version"):
        last(made)


def test_a_checkpoint_is_passed_over_whose_history_lost_a_line(tmp_path, caplog):
    made = checkpoints(tmp_path, [0, 1])
    assert last(made, history=lambda rounds: past(rounds) if rounds < 2 else None)[0] == 0
    assert "does not belong to these lines of rounds.jsonl" in caplog.text


def test_checkpoints_without_their_history_are_refused(tmp_path):
    made = checkpoints(tmp_path, [0, 1])
    with pytest.raises(RunFolderError, match=r"lines of rounds.jsonl, of which some were lost or altered"):
        last(made, history=lambda rounds: "another history")


def test_checkpoints_of_rounds_that_are_done_again_are_removed(tmp_path):
    made = checkpoints(tmp_path, range(4))
    made.drop_after(3)
    assert last(made)[0] == 2
    made.drop_after(0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_checkpoint_intact(tmp_path, monkeypatch):
    made = checkpoints(tmp_path, [0])

    def full(self, path, tensors):
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "save", full)
    with pytest.raises(
        RunFolderError, match=r"round 1: cannot be written .No space left.*; the earlier one is intact; free some space"
    ):
        made.write(place(1), state(1.0))
    monkeypatch.undo()
    assert last(made)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["round-00000"]


def test_a_half_written_folder_is_never_taken_for_a_checkpoint(tmp_path):
    made = checkpoints(tmp_path, [0])
    for name in (".round-00009.writing-1", "round-9", "round-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("{}")
    assert last(made)[0] == 0
