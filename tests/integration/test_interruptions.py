"""A run that is killed, or whose disk is full, loses no finished round, and resumes bitwise."""

import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

SETTINGS = [
    "--set",
    "local.max_steps=2",
    "--set",
    "measuring.per_client=0",
    "--rounds",
    "40",
]


def command(folder, *more):
    return [sys.executable, "-m", "fedpace", "run", "fedpace", *SETTINGS, "--out", str(folder), *more]


def finished_rounds(folder):
    file = folder / "rounds.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(command(folder), check=True, capture_output=True)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_then_resume_is_bitwise(uninterrupted, tmp_path, seed):
    folder = tmp_path / "run"
    moment = random.Random(seed)
    for _ in range(2):
        before = finished_rounds(folder)
        process = subprocess.Popen(command(folder, "--resume"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while finished_rounds(folder) <= before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moment.uniform(0, 0.3))
        killed = finished_rounds(folder)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert before < killed < 40  # it was in the middle
        assert finished_rounds(folder) >= killed
    subprocess.run(command(folder, "--resume"), check=True, capture_output=True)
    assert finished_rounds(folder) == 40
    assert (folder / "model.safetensors").read_bytes() == uninterrupted


def test_a_full_disk_is_one_line_and_the_run_resumes_bitwise(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while finished_rounds(folder) < 4:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    checkpoints = sorted(path.name for path in (folder / "checkpoint").glob("round-*"))

    def small_disk():  # a file of the size of a checkpoint cannot be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    limited = command(folder, "--resume", "--set", "executor=serial")  # the limit holds for shared memory, too
    full = subprocess.run(limited, capture_output=True, text=True, preexec_fn=small_disk)
    assert full.returncode == 2
    assert "cannot be written (File too large); the earlier one is intact" in full.stderr.splitlines()[-1]
    assert sorted(path.name for path in (folder / "checkpoint").glob("round-*")) == checkpoints
    subprocess.run(command(folder, "--resume"), check=True, capture_output=True)
    assert (folder / "model.safetensors").read_bytes() == uninterrupted
