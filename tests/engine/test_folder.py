import subprocess
import sys

import pytest

from fedpace.core import RunFolderError
from fedpace.engine import RunFolder

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
