"""A real deployment on this machine: TLS, authenticated SuperNodes, a lost node, a restarted SuperLink."""

import signal
import socket
import subprocess
from contextlib import ExitStack

import pytest

pytest.importorskip("flwr")

from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute

from .deployment import HOST, MISSING, PATIENCE, RECIPE, Deployment, wait_until

CLIENTS, ROUNDS = 3, 5
SETTINGS = {"data.source": "digits", "model": "linear", "rounds": ROUNDS, "local.max_steps": 3}
SETTINGS |= {"measuring.per_client": 0, "wire": "int8"}

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")


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
        deployment = Deployment(tmp_path, stack, CLIENTS)
        deployment.do("certificates.sh", HOST, CLIENTS + 1)
        link = deployment.superlink()
        deployment.do("connect.sh", HOST, deployment.port, CLIENTS)
        nodes = [deployment.supernode(client) for client in range(CLIENTS)]

        stranger = deployment.supernode(CLIENTS)  # has a key, but nobody registered it
        wait_until(lambda: stranger.poll() is not None, "the refusal of an unregistered node")
        assert stranger.returncode != 0

        first = deployment.run(SETTINGS)
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
        second = deployment.run(SETTINGS, "--resume")
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
