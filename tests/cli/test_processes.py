import signal
import subprocess
import sys

import pytest

from ..processes import alive, children, has_proc, until, with_modules
from .helpers import FAST, LINEAR, SHORT, ended, losses, process, rounds_of, strict


def test_an_interrupt_is_one_line_that_says_how_to_go_on(fedpace, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedpace.experiments.engines.execute", interrupted)
    found = fedpace("run", "fedavg", *FAST)
    assert (found.code, found.out, found.err.count("\n")) == (130, "", 1)
    assert "--resume" in found.err


# Whole processes.


def test_a_process_that_succeeds_prints_json_and_each_warning_once():
    stage = ["--set", "prune.first=0", "--set", "prune.last=1"]
    found = ended(process("run", "fedpace-prune", *FAST, *stage, "--out", "mine", "--json"))
    assert found.code == 0
    (warning,) = strict(found.out)["warnings"]
    assert found.err == f"warning: {warning}\n"


def test_a_process_that_fails_ends_with_2_and_one_line():
    found = ended(process("run", "fedavg", *FAST, "--set", "local.lrr=1"))
    assert found == (2, "", "error: fedavg: method 'sgd': unknown key 'lrr'; did you mean 'lr'?\n")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys\n"
        "from fedpace.cli import main\n"
        "sys.argv = ['fedpace', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    sys.exit('torch' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert "compare" in found.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_goes_on_as_if_never_stopped(fedpace, place, monkeypatch, number):
    modules = place.parent / "modules"
    modules.mkdir()
    (modules / "sluggish.py").write_text(
        "import os, time\n"
        "from torch import nn\n"
        "class Sluggish(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        time.sleep(float(os.environ.get('PAUSE', 0)))\n"
        "        return self.layer(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(modules)
    arguments = ["run", "fedavg", *SHORT, "--model", "sluggish:Sluggish", "--rounds", "12"]
    child = process(*arguments, "--out", "stopped", PAUSE="0.05", PYTHONPATH=with_modules(modules))
    assert until(lambda: rounds_of("stopped") >= 2 or child.poll() is not None, 120)
    child.send_signal(number)
    found = ended(child)
    assert found.code == 128 + number
    assert found.err == "stopped; finished rounds are kept: the same command goes on (run: with --resume)\n"
    assert 2 <= len(losses("stopped")) < 12
    for folder in ("stopped", "straight"):
        assert fedpace(*arguments, "--out", folder, "--resume").code == 0
    assert losses("stopped") == losses("straight")
    models = [(place / folder / "model.safetensors").read_bytes() for folder in ("stopped", "straight")]
    assert models[0] == models[1]


@has_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_no_run_of_a_comparison_outlives_it(place, number):
    endless = ["--seeds", "0", *LINEAR, *SHORT, "--rounds", "1000000", "--workers", "2", "--out", "runs"]
    child = process("compare", "fedavg", "gma", *endless)
    assert until(lambda: min(map(rounds_of, ("runs/fedavg-seed0", "runs/gma-seed0"))) > 0, 120)
    workers = children(child.pid)
    assert len(workers) == 2
    child.send_signal(number)
    assert ended(child).code == (-signal.SIGKILL if number == signal.SIGKILL else 129)
    assert until(lambda: not any(map(alive, workers)))
