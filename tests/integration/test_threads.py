"""A parent that has used several threads, as any notebook has, must not hang the processes that it forks."""

import subprocess
import sys

SCRIPT = """
import torch
torch.set_num_threads(4)
torch.nn.functional.conv2d(torch.rand(64, 16, 32, 32), torch.rand(16, 16, 3, 3))  # starts the thread pool

import fedpace
settings = {"local.max_steps": 1}
print(fedpace.compare(["fedavg"], "digits", seeds=(0, 1), rounds=2, settings=settings, workers=2))
print(fedpace.train("digits", "fedavg", rounds=2, settings={**settings, "executor.workers": 2}).accuracy)
assert torch.get_num_threads() == 4
"""


def test_forked_processes_do_not_hang_after_a_multi_threaded_parent():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "fedavg" in done.stdout
