"""What a round costs as SuperNodes are added, and what formats save: a real deployment with TLS on this machine.

``python -m benchmarks.deployment`` from the project's folder prints one table. One SuperLink serves all of it, and
SuperNodes are added from run to run. It ends after ``--minutes`` at the latest, and before the memory does: what it did
not come to is said below the table. Seconds are those of this machine, on which all nodes share the cores; bytes and
memory are what they would be elsewhere.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from subprocess import Popen
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks.contest.tables import markdown, put, shown
from benchmarks.programs import memory, seconds
from rich.console import Console
from tests.flower.deployment import BIN, HOST, Deployment, wait_until

WIDTHS = {100_000: 280, 11_000_000: 3279}  # parameters → units in the two hidden layers
MOST = {11_000_000: 8}  # nodes, with so many parameters
FORMATS = ("bf16", "int8", "signs")  # beside float32, with the most parameters
AT = 4  # nodes among which formats are compared
SETTINGS = {"data.source": "digits", "data.partition.name": "iid", "local.max_steps": 1, "local.batch": 8}
SETTINGS |= {"measuring.per_client": 0, "measuring.pairwise": 0}
SERVER_APP, SUPERLINK = "flwr-serverapp", "flower-superlink"
TITLE = "Per round; memory at most"
SPARE = 1500.0  # MB that nobody may take, and at first what a node is taken to need


@dataclass(frozen=True)
class Cost:
    """A round's means: bytes as they are counted, and on the loopback in all; MB at most, seconds of computing."""

    parameters: int
    wire: str
    nodes: int
    used: float
    up: float
    down: float
    loopback: float
    seconds: float
    server_app: float
    superlink: float
    node: float
    computing: float


@dataclass
class Watch:
    """Looks at a run until it ends."""

    deployment: Deployment
    link: Popen[bytes]
    node: Popen[bytes]

    def costs(self, run: Popen[bytes], out: str, parameters: int, wire: str, nodes: int, end: float) -> Cost | None:
        """What its rounds cost but for the first one, which warms up; nothing if there was no time for them."""
        marks: dict[int, tuple[int, float]] = {}  # rounds that are over → bytes and seconds of computing by then
        held, of_node = {SERVER_APP: 0.0, SUPERLINK: 0.0}, 0.0
        while run.poll() is None and monotonic() < end:
            found = memory(self.link.pid)
            held = {name: max(most, found.get(name, 0.0)) for name, most in held.items()}
            of_node = max(of_node, sum(memory(self.node.pid).values()))
            marks.setdefault(len(self.deployment.rounds(out)), (loopback(), sum(seconds(self.link.pid).values())))
            sleep(0.2)
        assert run.returncode in (None, 0), self.deployment.log(out)
        if run.poll() is None:
            self.deployment.stop(run)
        records = self.deployment.rounds(out)[1:]
        first, last = min((n for n in marks if n), default=0), max(marks, default=0)
        if not records or first == last:
            return None
        (bytes_before, computed_before), (bytes_after, computed_after) = marks[first], marks[last]
        rounds = last - first
        return Cost(
            parameters,
            wire,
            nodes,
            median(record.used for record in records),
            median(record.bytes_up for record in records),
            median(record.bytes_down for record in records),
            (bytes_after - bytes_before) / rounds,
            median(record.seconds.total for record in records),
            held[SERVER_APP],
            held[SUPERLINK],
            of_node,
            (computed_after - computed_before) / rounds,
        )


def loopback() -> int:
    """Bytes that this machine has sent itself."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def available() -> float:
    """MB that processes may still take."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 1e3


def connected(deployment: Deployment) -> int:
    """How many SuperNodes the SuperLink knows of that are there."""
    command = [str(BIN / "flwr"), "supernode", "list", "fedpace", "--format", "json"]
    said = subprocess.run(
        command, env=deployment.environment, cwd=deployment.folder, capture_output=True, text=True, check=False
    )
    try:
        return sum(node["status"] == "online" for node in json.loads(said.stdout[said.stdout.index("{") :])["nodes"])
    except (KeyError, ValueError):
        return 0


def courses(nodes: Sequence[int], parameters: Sequence[int], formats: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Nodes, parameters and format of each run: few nodes first, because they are only ever added."""
    for number in sorted(nodes):
        for size in parameters:
            if number <= MOST.get(size, number):
                others = formats if number == AT and size == max(parameters) else ()
                yield from ((number, size, wire) for wire in ("float32", *others))


COLUMNS = ("parameters", "format", "nodes", "MB up", "MB down", "MB on loopback", "s", "s of the server")
COLUMNS += ("ServerApp MB", "SuperLink MB", "a SuperNode MB")


def lines(costs: Sequence[Cost]) -> list[list[str]]:
    """A line per run."""
    found = []
    for cost in sorted(costs, key=lambda cost: (cost.parameters, cost.nodes, -cost.up)):
        moved = (f"{value / 1e6:.3g}" for value in (cost.up, cost.down, cost.loopback))
        spent = (f"{cost.seconds:.1f}", f"{cost.computing:.1f}")
        held = (f"{value:.0f}" for value in (cost.server_app, cost.superlink, cost.node))
        found.append([f"{cost.parameters:,}", cost.wire, str(cost.nodes), *moved, *spent, *held])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--parameters", type=int, nargs="+", default=sorted(WIDTHS), choices=sorted(WIDTHS))
    parser.add_argument("--formats", nargs="*", default=FORMATS, help=f"beside float32, with {AT} nodes")
    parser.add_argument("--rounds", type=int, default=4, help="of each run; the first one is not counted")
    parser.add_argument("--json", type=Path, help="write the table here")
    parser.add_argument("--markdown", type=Path, help="a page into which the table is put")
    options = parser.parse_args()
    console, end, costs, left_out = Console(width=150), monotonic() + 60 * options.minutes, list[Cost](), list[str]()
    most = max(options.nodes)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        deployment = Deployment(Path(folder), stack, most)
        deployment.do("certificates.sh", HOST, most)
        link = deployment.superlink()
        deployment.do("connect.sh", HOST, deployment.port, most)
        running: list[Popen[bytes]] = []
        for nodes, parameters, wire in courses(options.nodes, options.parameters, options.formats):
            said = f"{nodes} nodes, {parameters:,} parameters, {wire}"
            heaviest = max((cost.node for cost in costs), default=SPARE)
            needed = (nodes - len(running)) * heaviest + SPARE
            if monotonic() >= end or available() < needed:
                left_out.append(f"{said}: {'no time' if monotonic() >= end else f'needs {needed:.0f} MB'}")
                continue
            running += [deployment.supernode(client) for client in range(len(running), nodes)]
            wait_until(lambda: connected(deployment) >= nodes, f"the connection of {nodes} nodes")  # noqa: B023
            out = f"run-{nodes}-{parameters}-{wire}"
            model = f'{{name = "mlp", width = {WIDTHS[parameters]}}}'
            settings = SETTINGS | {"data.partition.clients": nodes, "model": model, "wire": wire}
            settings |= {"rounds": options.rounds, "measuring.every": options.rounds}
            run = deployment.run(settings, preset="fedavg", out=out, timeout=1800)
            cost = Watch(deployment, link, running[0]).costs(run, out, parameters, wire, nodes, end)
            if cost is None:
                left_out.append(f"{said}: not two rounds in time")
                continue
            costs.append(cost)
            console.print(f"{said}: {cost.seconds:.1f} s a round")
    shown(TITLE, COLUMNS, lines(costs), console)
    for line in left_out:
        console.print(f"not measured: {line}")
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs]))
    if options.markdown:
        put(options.markdown, "deployment", markdown(TITLE, COLUMNS, lines(costs), "\n".join(left_out)))


if __name__ == "__main__":
    main()
