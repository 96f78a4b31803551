"""What the engine adds to a personalised method's own work, beside what it adds to FedAvg's. Prints one table.

Everything but the clients' work counts: sending, guarding, aggregating, and personal state that is read and written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

from fedpace.core import Update
from fedpace.engine import Listener, Record
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
    """Seconds of each round that no client worked in."""

    def __init__(self) -> None:
        self.overheads: list[float] = []
        self._work, self._start = 0.0, perf_counter()

    def finished_round(self, record: Record) -> None:
        """Note the round, and begin the next one."""
        self.overheads.append(perf_counter() - self._start - self._work)
        self._work, self._start = 0.0, perf_counter()

    def timing(self, work: Callable[..., Update]) -> Callable[..., Update]:
        """A work whose time is known."""

        def timed(*arguments: Any) -> Update:
            start = perf_counter()
            try:
                return work(*arguments)
            finally:
                self._work += perf_counter() - start

        return timed


def overhead(preset: str) -> tuple[float, int]:
    """Seconds per client and round beside the clients' work, and the bytes that a client keeps."""
    config, clock = load_config(preset, SETTINGS), Clock()
    kind = type(config.local)
    with TemporaryDirectory() as folder, patch.object(kind, "__call__", clock.timing(kind.__call__)):
        execute(config, out=Path(folder) / "run", listeners=[clock])
        files = sorted(Path(folder).rglob("00000-*.safetensors"))
        kept = files[-1].stat().st_size if files else 0
    return median(clock.overheads[2:]) / CLIENTS, kept


def storing(size: int) -> float:
    """Seconds to keep and to find again a state of so many bytes."""
    state, times = {"state": torch.zeros(size // 4)}, []
    with TemporaryDirectory() as folder:
        states = ClientStates(Path(folder))
        for number in range(ROUNDS):
            start = perf_counter()
            states.keep(0, number, state)
            states.of(0)
            times.append(perf_counter() - start)
    return median(times)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    table = Table(
        *("method", "keeps (MB)", "overhead (ms)", "of FedAvg (ms)", "its state alone (ms)", "overhead without it"),
        title=f"Per client and round, cnn4 on CIFAR-10, {CLIENTS} clients (wanted: at most FedAvg's)",
    )
    for method in METHODS:
        plain, _ = overhead("fedavg")
        own, kept = overhead(method)
        stored = storing(kept) if kept else 0.0
        cells = (f"{kept / 1e6:.1f}", *(f"{1000 * value:.1f}" for value in (own, plain, stored)))
        table.add_row(method, *cells, f"{(own - stored) / plain:.2f} ×")
    Console().print(table)


if __name__ == "__main__":
    main()
