"""What commands import: whoever reads a run folder, or asks for help, does not wait for what trains."""

import json
import subprocess
import sys

import pytest

from .helpers import FAST

LIBRARIES = {"matplotlib", "numba", "optuna", "pandas", "plotly", "pyarrow", "scipy", "sklearn", "torch"}
CODE = """
import json, sys
from fedpace.cli import main
sys.argv = ["fedpace", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(*arguments):
    """Exit code, output, and the modules that a command has imported when it ends."""
    found = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=False)
    code, modules = json.loads(found.stderr.splitlines()[-1])
    return code, found.stdout, set(modules)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "compare"),
        (["--version"], "fedpace 0.1.0"),
        (["run", "--help"], "--dry-run"),
        (["list", "rules"], "and_mask"),
        (["list", "methods"], "scaffold"),
        (["list", "reproductions"], "gma.table2"),
    ],
    ids=" ".join,
)
def test_help_and_lists_wait_for_no_library(arguments, said):
    code, out, modules = imported(*arguments)
    assert code == 0
    assert said in out
    assert modules & (LIBRARIES | {"numpy"}) == set()


def test_to_show_a_run_takes_no_torch(fedpace):
    assert fedpace("run", "fedavg", *FAST, "--out", "mine").code == 0
    code, out, modules = imported("show", "mine")
    assert code == 0
    assert "mean of last 10" in out
    assert modules & LIBRARIES == set()


def test_a_mistake_is_told_without_torch():
    code, _, modules = imported("show", "nowhere")
    assert code == 2
    assert modules & LIBRARIES == set()


def test_the_first_round_takes_only_what_it_uses():
    code, _, modules = imported("run", "fedavg", *FAST, "--out", "mine", "--json")
    assert code == 0
    assert modules & LIBRARIES == {"torch", "numba", "pyarrow", "scipy"}  # numba asks for SciPy's BLAS, not for more
    assert modules & {"scipy.optimize", "scipy.stats", "scipy.special", "torch._dynamo"} == set()


def test_the_package_can_be_run_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "fedpace", "list", "tasks"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "next_token" in done.stdout
