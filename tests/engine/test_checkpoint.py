import errno
import json

import pytest
import torch

from fedpace.core import RunFolderError
from fedpace.engine.checkpoint import Checkpoints


def state(value: float) -> dict[str, torch.Tensor]:
    return {"vector": torch.full((4,), value), "mask": torch.tensor([True, False])}


def test_the_newest_checkpoint_is_read_back_and_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in range(4):
        checkpoints.write(number, state(float(number)))
    number, tensors = checkpoints.last()
    assert number == 3
    assert torch.equal(tensors["vector"], torch.full((4,), 3.0))
    assert tensors["mask"].dtype == torch.bool
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-00002", "round-00003"]


def test_nothing_written_means_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "none").last() is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "no json", "bad json", "no tensors"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage, caplog):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(0, state(0.0))
    checkpoints.write(1, state(1.0))
    tensors, description = tmp_path / "round-00001/state.safetensors", tmp_path / "round-00001/state.json"
    if damage == "truncate":
        tensors.write_bytes(tensors.read_bytes()[:-3])
    elif damage == "flip":
        tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x7f")
    elif damage == "no json":
        description.unlink()
    elif damage == "bad json":
        description.write_text("{")
    else:
        tensors.unlink()
    assert checkpoints.last()[0] == 0
    assert "round-00001 is damaged" in caplog.text


def test_a_full_disk_leaves_the_old_checkpoint_intact(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(0, state(0.0))

    def full(self, data):
        with open(self, "wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(RunFolderError, match=r"round 1 could not be written .No space left.*earlier one is intact"):
        checkpoints.write(1, state(1.0))
    monkeypatch.undo()
    assert checkpoints.last()[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["round-00000"]


def test_a_half_written_folder_is_never_taken_for_a_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(0, state(0.0))
    aside = tmp_path / ".writing-1"
    aside.mkdir()
    (aside / "state.json").write_text(json.dumps({"round": 9, "sha256": ""}))
    assert checkpoints.last()[0] == 0
