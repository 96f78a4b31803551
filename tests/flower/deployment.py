"""A SuperLink with SuperNodes on this machine, made by the recipe in ``examples/deployment``."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from fedpace.engine import read_rounds

RECIPE = Path(__file__).parents[2] / "examples" / "deployment"
BIN = Path(sys.executable).parent
HOST, PATIENCE = "127.0.0.1", 600  # seconds: on a machine that does other things, too, processes take long to begin
MISSING = [tool for tool in ("openssl", "ssh-keygen", "bash") if shutil.which(tool) is None]


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return str(found.getsockname()[1])


def wait_until(condition, what, seconds=PATIENCE):
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, f"{what} did not happen within {seconds} s"
        sleep(0.5)


class Deployment:
    """A SuperLink and SuperNodes as processes, each the leader of a group that ends with the stack."""

    def __init__(self, folder, stack, clients):
        self.folder, self.stack, self.clients, self.port = folder, stack, clients, free_port()
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | quiet | {"PATH": path, "FLWR_HOME": str(folder / "home")}

    def do(self, script, *arguments):
        command = ["bash", str(RECIPE / script), *map(str, arguments)]
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True, timeout=PATIENCE
        )

    def start(self, name, command, **environment):
        log = self.stack.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment | environment, stdout=log, stderr=log, start_new_session=True
        )
        self.stack.callback(self.stop, process, signal.SIGKILL)
        return process

    def stop(self, process, how=signal.SIGTERM):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        process.wait(timeout=30)

    def superlink(self):
        process = self.start("superlink", ["bash", str(RECIPE / "superlink.sh"), HOST, self.port])
        wait_until(self.listens, "the SuperLink's port")
        return process

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex((HOST, int(self.port))) == 0

    def supernode(self, client, **environment):
        script = ["bash", str(RECIPE / "supernode.sh"), HOST, self.port, str(client), str(self.clients), free_port()]
        return self.start(f"node{client}", script, **environment)

    def run(self, settings, *options, preset="fedpace", out="run", timeout=120):
        settings = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [str(BIN / "fedpace"), "run", preset, "--engine", "flower-deployment", "--superlink", "fedpace"]
        return self.start(out, [*command, "--out", out, "--timeout", str(timeout), *settings, *options])

    def rounds(self, out="run"):
        return read_rounds(self.folder / out)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")
