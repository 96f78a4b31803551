"""What commands cost before they do anything: time, and how much is imported. Prints one table.

Each command runs in a fresh process, all of them in turn and several times; the fastest time of each counts. CPU
seconds are those of all its processes. ``python benchmarks/startup.py [--repeats 5]``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console
from rich.table import Table

COUNTED = "import sys; print(len(sys.modules), file=sys.stderr)"
COMMAND = f"""
import sys
from fedpace.cli import main
sys.argv = ["fedpace", *sys.argv[1:]]
try:
    main()
except SystemExit:
    {COUNTED}
"""


@dataclass(frozen=True)
class Cost:
    """Of one process and its children."""

    seconds: float
    cpu: float
    modules: int


def cost(code: str, *arguments: str) -> Cost:
    """What a process costs that runs some code, which ends with a line that counts modules."""
    begun = perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = perf_counter() - begun
    if status:
        raise RuntimeError(f"fedpace {' '.join(arguments)}: {said}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, int(said.splitlines()[-1]))


def fedpace(*arguments: str) -> Cost:
    """What a command costs."""
    return cost(COMMAND, *arguments)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with TemporaryDirectory() as folder:
        run, others = str(Path(folder) / "run"), iter(range(10**6))
        fedpace("run", "fedavg", "--model", "linear", "--rounds", "10", "--out", run, "--json")
        measured = {
            "python -c pass": lambda: cost(COUNTED),
            "import torch": lambda: cost(f"import torch; {COUNTED}"),
            "import fedpace": lambda: cost(f"import fedpace; {COUNTED}"),
            "fedpace --version": lambda: fedpace("--version"),
            "fedpace --help": lambda: fedpace("--help"),
            "fedpace list rules": lambda: fedpace("list", "rules"),
            "fedpace list methods": lambda: fedpace("list", "methods"),
            "fedpace show RUN": lambda: fedpace("show", run),
            "fedpace show PRESET": lambda: fedpace("show", "fedpace"),
            "fedpace config local.lr": lambda: fedpace("config", "local.lr"),
            "a first round of digits": lambda: fedpace(
                "run", "fedavg", "--rounds", "1", "--out", f"{folder}/{next(others)}", "--json"
            ),
        }
        found: dict[str, list[Cost]] = {name: [] for name in measured}
        for _ in range(repeats):
            for name, measure in measured.items():
                found[name].append(measure())
    show(found)


def show(found: dict[str, list[Cost]]) -> None:
    """Print the table."""
    table = Table(title="Before anything happens")
    table.add_column("command", no_wrap=True)
    for column in ("seconds", "CPU seconds", "modules", "CPU: × python", "CPU: × torch"):
        table.add_column(column, justify="right")
    cpu = {name: min(one.cpu for one in costs) for name, costs in found.items()}
    for name, costs in found.items():
        ratios = (f"{cpu[name] / cpu[base]:.2f}" for base in ("python -c pass", "import torch"))
        seconds = min(one.seconds for one in costs)
        table.add_row(name, f"{seconds:.2f}", f"{cpu[name]:.2f}", str(costs[0].modules), *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
