"""What our strategies cost beside Flower's own FedAvg, and Flower's simulation beside our engine. Prints two tables.

Everything is measured in one run, interleaved, as ratios: absolute times on a shared machine mean little.
"""

from __future__ import annotations

import logging
import os
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from rich.console import Console
from rich.table import Table

from fedpace.experiments.engines import Engine, run_on
from fedpace.experiments.presets import load_config
from fedpace.flower import ConflictFree, GradientMasked, Harmonised, InProcessGrid, SignDampened

CLIENTS, REPEATS = 10, 5
SIZES = {100_000: 1.3, 11_000_000: 1.5}  # parameters → wanted ratio
ENGINES: tuple[Engine, ...] = ("local", "flower-simulation")


def client() -> ClientApp:
    """A ClientApp that answers at once: its arrays, moved a little."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        noise = np.float32(int(context.node_config["partition-id"]) - CLIENTS / 2)
        arrays = message.content.array_records["arrays"]
        moved = ArrayRecord({name: Array(array.numpy() + noise) for name, array in arrays.items()})
        return Message(RecordDict({"arrays": moved, "m": MetricRecord({"num-examples": 10})}), reply_to=message)

    return app


def seconds(strategy: Strategy, grid: InProcessGrid, arrays: ArrayRecord) -> float:
    """What the strategy itself takes in a round, without the clients."""
    start = perf_counter()
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    spent = perf_counter() - start
    replies = list(grid.send_and_receive(messages))
    start = perf_counter()
    strategy.aggregate_train(1, replies)
    return spent + perf_counter() - start


def strategies() -> Table:
    """Our strategies against FedAvg, on the same arrays."""
    ours: dict[str, Any] = {
        "GradientMasked": lambda: GradientMasked(pairwise=0),
        "SignDampened": lambda: SignDampened(pairwise=0),
        "Harmonised": lambda: Harmonised(pairwise=0),
        "ConflictFree": lambda: ConflictFree(pairwise=0),
    }
    table = Table(
        "parameters", *ours, "wanted", title=f"Time of a round relative to Flower's FedAvg, {CLIENTS} clients"
    )
    for size, wanted in SIZES.items():
        layer = size // 10
        arrays = ArrayRecord({f"{i}": Array(np.zeros(layer, dtype=np.float32)) for i in range(10)})
        grid = InProcessGrid(client(), CLIENTS)
        times: dict[str, list[float]] = {name: [] for name in ("FedAvg", *ours)}
        for repeat in range(REPEATS + 1):
            for name, build in {"FedAvg": FedAvg, **ours}.items():
                spent = seconds(build(), grid, arrays)
                if repeat:  # the first one warms up
                    times[name].append(spent)
        found = {name: median(a / b for a, b in zip(times[name], times["FedAvg"], strict=True)) for name in ours}
        table.add_row(f"{size:,}", *(f"{ratio:.2f} ×" for ratio in found.values()), f"≤ {wanted} ×")
    return table


def engines() -> Table:
    """Our engine against Flower's simulation on the same job."""
    settings = {"data.source": "cifar10", "data.partition": {"name": "iid", "clients": 10}, "rounds": 3}
    config = load_config("fedavg", settings | {"local.max_steps": 20, "measuring.every": 3, "measuring.per_client": 0})
    times = {}
    for engine in ENGINES:
        start = perf_counter()
        run_on(engine, config)
        times[engine] = perf_counter() - start
    table = Table("engine", "time", title="3 rounds of 10 clients × 20 steps, small_cnn on CIFAR-10, start included")
    for engine, spent in times.items():
        table.add_row(engine, f"{spent / times['local']:.2f} ×")
    return table


def main() -> None:
    """Measure and print."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    Console().print(strategies())
    Console().print(engines())


if __name__ == "__main__":
    main()
