"""What our strategies cost beside Flower's own FedAvg, and Flower's simulation beside our engine. Prints two tables.

Everything is measured in one run, interleaved, as ratios: absolute times on a shared machine mean little.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from statistics import median
from time import perf_counter

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

CLIENTS = 10
SIZES = {100_000: (1.3, 40), 11_000_000: (1.5, 9)}  # parameters → wanted ratio, rounds to measure
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


def one_round(
    strategy: Strategy, number: int, arrays: ArrayRecord, grid: InProcessGrid
) -> tuple[ArrayRecord, float, float]:
    """The new arrays, the seconds of the round, and those of the strategy alone, without messages and clients."""
    start = perf_counter()
    messages = list(strategy.configure_train(number, arrays, ConfigRecord(), grid))
    asked = perf_counter()
    replies = list(grid.send_and_receive(messages))
    answered = perf_counter()
    found, _ = strategy.aggregate_train(number, replies)
    assert found is not None
    end = perf_counter()
    return found, end - start, end - start - (answered - asked)


def strategies() -> Table:
    """Our strategies against FedAvg, on the same arrays."""
    built: dict[str, Callable[[], Strategy]] = {
        "FedAvg": FedAvg,
        "GradientMasked": GradientMasked,
        "SignDampened": SignDampened,
        "Harmonised": Harmonised,
        "ConflictFree": ConflictFree,
    }
    table = Table("parameters", "time of", *built, "wanted", title=f"Relative to Flower's FedAvg, {CLIENTS} clients")
    for size, (wanted, repeats) in SIZES.items():
        initial = ArrayRecord({f"{i}": Array(np.zeros(size // 10, dtype=np.float32)) for i in range(10)})
        grid = InProcessGrid(client(), CLIENTS)
        runs = {name: (build(), initial) for name, build in built.items()}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in built}
        for number in range(1, repeats + 2):
            for name, (strategy, arrays) in runs.items():
                found, whole, alone = one_round(strategy, number, arrays, grid)
                runs[name] = (strategy, found)
                if number > 1:  # the first one warms up
                    times[name].append((whole, alone))
        for which, what in enumerate(("a round", "the strategy alone")):
            ratios = [
                median(a[which] / b[which] for a, b in zip(times[name], times["FedAvg"], strict=True)) for name in built
            ]
            limit = f"≤ {wanted} ×" if which == 0 else ""
            table.add_row(f"{size:,}", what, *(f"{ratio:.2f} ×" for ratio in ratios), limit)
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
