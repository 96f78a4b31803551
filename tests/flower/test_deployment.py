"""A real deployment on this machine: TLS, authenticated SuperNodes, a lost node, a restarted SuperLink."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("flwr")

from fedpace.engine import read_rounds
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute

RECIPE = Path(__file__).parents[2] / "examples" / "deployment"
BIN = Path(sys.executable).parent
HOST, CLIENTS, ROUNDS, PATIENCE = "127.0.0.1", 3, 5, 240
SETTINGS = {"data.source": "digits", "model": "linear", "rounds": ROUNDS, "local.max_steps": 3}
SETTINGS |= {"measuring.per_client": 0}

needs = [tool for tool in ("openssl", "ssh-keygen", "bash") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(needs), reason=f"needs {', '.join(needs)}")


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
    """A SuperLink and its SuperNodes as processes, each the leader of a group that ends with the test."""

    def __init__(self, folder, stack):
        self.folder, self.stack, self.port = folder, stack, free_port()
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | quiet | {"PATH": path, "FLWR_HOME": str(folder / "home")}

    def do(self, script, *arguments):
        command = ["bash", str(RECIPE / script), *map(str, arguments)]
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True, timeout=PATIENCE
        )

    def start(self, name, command):
        log = self.stack.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
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

    def supernode(self, client):
        script = ["bash", str(RECIPE / "supernode.sh"), HOST, self.port, str(client), str(CLIENTS), free_port()]
        return self.start(f"node{client}", script)

    def run(self, *options):
        settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        command = [str(BIN / "fedpace"), "run", "fedpace", "--engine", "flower-deployment", "--superlink", "fedpace"]
        return self.start("run", [*command, "--out", "run", "--timeout", "120", *settings, *options])

    def rounds(self):
        return read_rounds(self.folder / "run")

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")


@pytest.mark.parametrize("script", ["superlink.sh", "supernode.sh"])
def test_port_in_use_is_one_line(script):
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = [HOST, port] if script == "superlink.sh" else [HOST, "9095", "0", "3", port]
        command = ["bash", str(RECIPE / script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: port {port}")
    assert done.stderr.count("\n") == 1


def test_deployment(tmp_path):
    with ExitStack() as stack:
        deployment = Deployment(tmp_path, stack)
        deployment.do("certificates.sh", HOST, CLIENTS + 1)
        link = deployment.superlink()
        deployment.do("connect.sh", HOST, deployment.port, CLIENTS)
        nodes = [deployment.supernode(client) for client in range(CLIENTS)]

        stranger = deployment.supernode(CLIENTS)  # has a key, but nobody registered it
        wait_until(lambda: stranger.poll() is not None, "the refusal of an unregistered node")
        assert stranger.returncode != 0

        first = deployment.run()
        wait_until(lambda: len(deployment.rounds()) >= 1, "the first round")
        deployment.stop(nodes[2], signal.SIGKILL)
        wait_until(lambda: any(record.dropped for record in deployment.rounds()), "a round without the lost node")
        lost = next(record for record in deployment.rounds() if record.dropped)
        assert [dropped.client for dropped in lost.dropped] == [2]

        deployment.stop(link)
        deployment.stop(first)
        done = len(deployment.rounds())
        assert done < ROUNDS
        before = deployment.rounds()[:done]
        deployment.superlink()
        deployment.supernode(2)
        second = deployment.run("--resume")
        wait_until(lambda: second.poll() is not None, "the end of the resumed run", 2 * PATIENCE)
        assert second.returncode == 0, deployment.log("run")

        records = deployment.rounds()
        assert [record.round for record in records] == list(range(ROUNDS))
        assert records[:done] == before
        local = execute(load_config("fedpace", SETTINGS | {"executor": "serial"}))
        whole = [i for i, record in enumerate(records) if not any(r.dropped for r in records[: i + 1])]
        assert whole
        for index in whole:  # as long as nobody was lost, it is the run of the local engine
            assert records[index].headline == local.records[index].headline
            assert records[index].metrics["loss"] == local.records[index].metrics["loss"]
