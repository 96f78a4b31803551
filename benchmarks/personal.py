"""What the engine adds to a personalised method's own work, beside what it adds to FedAvg's. Prints one table.

Everything but the clients' work counts: sending, guarding, aggregating, and personal state that is read and written.
A method may take longer in proportion to what it sends (FedCP's policy), and for its own work on the server (FedPAC's
heads).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Column, Table

from fedpace.core import RoundRecord
from fedpace.engine import Listener
from fedpace.engine.states import ClientStates
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute

METHODS = ("per_fedavg", "lg_fedavg", "apfl", "fedrod", "fedrep", "fedcp", "fedala", "fedpac")
CLIENTS, ROUNDS = 10, 8
SETTINGS = {
    "data.source": "cifar10",
    "data.partition": {"name": "practical", "clients": CLIENTS, "limit": 3000},
    "model": "cnn4",
    "rounds": ROUNDS,
    "local.max_steps": 1,
    "measuring.every": 10 * ROUNDS,
    "executor": "serial",
}


class Clock(Listener):
    """Seconds of each round in which no client worked, and those of them that went into what clients keep."""

    def __init__(self) -> None:
        self.overheads: list[float] = []
        self.storing: list[float] = []
        self.bytes_up = 0
        self._begin()

    def _begin(self) -> None:
        self._spent, self._start = {"work": 0.0, "state": 0.0}, perf_counter()

    def finished_round(self, record: RoundRecord) -> None:
        """Note the round, and begin the next one."""
        self.overheads.append(perf_counter() - self._start - self._spent["work"])
        self.storing.append(self._spent["state"])
        self.bytes_up = record.bytes_up
        self._begin()

    def timing(self, kind: type, method: str, on: str) -> AbstractContextManager[object]:
        """Meanwhile the time of a method is known."""
        original = getattr(kind, method)

        def timed(*arguments: Any) -> Any:
            start = perf_counter()
            try:
                return original(*arguments)
            finally:
                self._spent[on] += perf_counter() - start

        return patch.object(kind, method, timed)


def overhead(preset: str) -> tuple[float, float, int, int]:
    """Seconds per client and round beside the clients' work, those for its state, and bytes kept and sent."""
    config, clock = load_config(preset, SETTINGS), Clock()
    with TemporaryDirectory() as folder, ExitStack() as patches:
        patches.enter_context(clock.timing(type(config.local), "__call__", "work"))
        for method in ("of", "keep"):
            patches.enter_context(clock.timing(ClientStates, method, "state"))
        execute(config, out=Path(folder) / "run", listeners=[clock])
        files = sorted(Path(folder).rglob("00000-*.safetensors"))
        kept = files[-1].stat().st_size if files else 0
    return median(clock.overheads[2:]) / CLIENTS, median(clock.storing[2:]) / CLIENTS, kept, clock.bytes_up


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    table = Table(
        Column("method", no_wrap=True),
        *("keeps (MB)", "sends", "overhead (ms)", "of FedAvg (ms)", "of its state (ms)", "without state"),
        title=f"Per client and round, cnn4 on CIFAR-10, {CLIENTS} clients (wanted: FedAvg's, or as it sends)",
    )
    for method in METHODS:
        plain, _, _, usual = overhead("fedavg")
        own, stored, kept, sent = overhead(method)
        times = (f"{1000 * value:.1f}" for value in (own, plain, stored))
        cells = (f"{kept / 1e6:.1f}", f"{sent / usual:.2f} ×", *times)
        table.add_row(method, *cells, f"{(own - stored) / plain:.2f} ×")
    Console().print(table)


if __name__ == "__main__":
    main()
