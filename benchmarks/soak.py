"""A deployment that is not left in peace: eight SuperNodes that come and go, two of them lying, for an hour.

``python -m benchmarks.soak --minutes 60`` from the project's folder prints a line per minute and a summary: rounds,
what was dropped and why, and how the memory of the ServerApp and of the SuperLink grew. All of it runs on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections import Counter
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median
from subprocess import Popen
from tempfile import mkdtemp
from time import monotonic, sleep

from benchmarks.programs import memory
from rich.console import Console
from rich.table import Table
from tests.flower.deployment import HOST, Deployment, wait_until

from fedpace.core import RoundRecord

CLIENTS, LIARS = 8, (6, 7)
SETTINGS = {"data.source": "digits", "data.partition.clients": CLIENTS, "model": "linear", "rounds": 10**6}
SETTINGS |= {"local.max_steps": 3, "measuring.per_client": 0, "aggregate.rule": "trimmed_mean"}
DISTURB = (10.0, 40.0)  # seconds between two disturbances
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
HOSTILE = Path(__file__).parent / "hostile"


class Nodes:
    """The SuperNodes, one of which is now and then ended or brought back."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self._deployment, self._rng = deployment, Random(seed)
        self._processes: dict[int, Popen[bytes]] = {}
        self.ended = 0
        for client in range(CLIENTS):
            self._begin(client)

    def _begin(self, client: int) -> None:
        lying = {"PYTHONPATH": os.pathsep.join([str(HOSTILE), os.environ.get("PYTHONPATH", "")])}
        self._processes[client] = self._deployment.supernode(client, **lying if client in LIARS else {})

    def disturb(self) -> float:
        """End a node, or bring one back; how long to leave them alone."""
        client = self._rng.randrange(CLIENTS)
        if client in self._processes:
            self._deployment.stop(self._processes.pop(client), self._rng.choice(SIGNALS))
            self.ended += 1
        else:
            self._begin(client)
        return self._rng.uniform(*DISTURB)


def report(console: Console, records: list[RoundRecord], memories: list[dict[str, float]], ended: int) -> None:
    """What the time has shown."""
    assert [record.round for record in records] == list(range(len(records))), "a round is lost"
    table = Table(title=f"{len(records)} rounds, {ended} nodes ended")
    for column in ("client", "used", "dropped", "why"):
        table.add_column(column)
    used = Counter(
        client for record in records for client in record.cohort if client not in {d.client for d in record.dropped}
    )
    why = sorted((d.client, d.reason.partition(":")[0]) for record in records for d in record.dropped)
    reasons = {client: Counter(reason for _, reason in found) for client, found in groupby(why, key=lambda d: d[0])}
    for client in range(CLIENTS):
        found = reasons.get(client, Counter())
        said = ", ".join(f"{number} × {reason}" for reason, number in found.most_common(4))
        name = f"{client} (lies)" if client in LIARS else str(client)
        table.add_row(name, str(used[client]), str(found.total()), said)
    console.print(table)
    for name in memories[-1]:
        held = [memory.get(name, 0.0) for memory in memories]
        quarter = max(len(held) // 4, 1)
        early, late = median(held[quarter : 2 * quarter] or held), median(held[-quarter:])
        console.print(f"{name}: {early:.0f} MB in the second quarter, {late:.0f} MB in the last")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the minutes here")
    options = parser.parse_args()
    console, folder = Console(), Path(mkdtemp())
    memories: list[dict[str, float]] = []
    with ExitStack() as stack:
        deployment = Deployment(folder, stack, CLIENTS)
        deployment.do("certificates.sh", HOST, CLIENTS)
        link = deployment.superlink()
        deployment.do("connect.sh", HOST, deployment.port, CLIENTS)
        nodes = Nodes(deployment, options.seed)
        run = deployment.run(SETTINGS)
        wait_until(lambda: (folder / "run" / "rounds.jsonl").exists(), "the first round")
        end = monotonic() + 60 * options.minutes
        next_minute, next_disturbance = monotonic(), monotonic() + DISTURB[1]
        while monotonic() < end:
            sleep(1)
            assert run.poll() is None, deployment.log("run")
            if monotonic() > next_disturbance:
                next_disturbance = monotonic() + nodes.disturb()
            if monotonic() > next_minute:
                next_minute += 60
                memories.append(memory(link.pid))
                held = ", ".join(f"{name} {size:.0f} MB" for name, size in memories[-1].items())
                console.print(f"{len(deployment.rounds())} rounds; {held}")
        report(console, deployment.rounds(), memories, nodes.ended)
        if options.json:
            options.json.write_text(json.dumps({"rounds": len(deployment.rounds()), "memory": memories}))


if __name__ == "__main__":
    main()
