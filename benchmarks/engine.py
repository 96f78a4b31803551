"""How close the engine comes to a bare PyTorch loop, and what it costs beside local training. Prints one table.

Everything is measured in one run, interleaved, as ratios: absolute times on a shared machine mean little.
"""

from __future__ import annotations

import multiprocessing as mp
import resource
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from fedpace.aggregation import Dampened, Mean, Rule, rules
from fedpace.core import Buffers, Layout, Update
from fedpace.data import Federation, load
from fedpace.engine import Executor, Measuring, Plan, Processes, RunFolder, Serial
from fedpace.engine.training import Training, one_thread
from fedpace.methods import LocalSGD
from fedpace.models import build
from fedpace.server import Exchange, Schedule, Server

CLIENTS, STEPS, BATCH, REPEATS = 4, 20, 32, 9
WORKERS = 2


def federation(clients: int = CLIENTS) -> Federation:
    """Images of CIFAR-10's shape, so that the benchmark needs no data."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients * STEPS * BATCH, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, len(images))
    return load((images, labels), test=(images[:100], labels[:100])).partition("iid", clients=clients)


def small_cnn() -> nn.Module:
    """The model of the paper."""
    return build("small_cnn", (3, 32, 32), 10, seed=0)


def bare_loop(data: Federation, client: int) -> None:
    """What anyone would write: model, Adam, batches in channels_last."""
    model = small_cnn().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    shard = data.clients[client]
    order = torch.randperm(len(shard))
    for step in range(STEPS):
        inputs, labels = shard.batch(order[step * BATCH : (step + 1) * BATCH])
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


class BarePool:
    """Processes of one thread each that run bare loops."""

    def __init__(self, data: Federation, workers: int) -> None:
        context = mp.get_context("fork")
        self._pipes = []
        for worker in range(workers):
            ours, theirs = context.Pipe()
            context.Process(target=self._serve, args=(theirs, data, worker, workers), daemon=True).start()
            self._pipes.append(ours)

    @staticmethod
    def _serve(pipe: mp.connection.Connection, data: Federation, worker: int, workers: int) -> None:
        torch.set_num_threads(1)
        while True:
            pipe.recv()
            for client in range(worker, CLIENTS, workers):
                bare_loop(data, client)
            pipe.send(None)

    def round(self) -> None:
        """All clients once."""
        for pipe in self._pipes:
            pipe.send(None)
        for pipe in self._pipes:
            pipe.recv()


class Engine:
    """A run of our engine that stays up between rounds."""

    def __init__(self, data: Federation, executor: Executor) -> None:
        self._execution = executor.start(small_cnn(), data)
        plan = Plan(
            rounds=10**6,
            local=LocalSGD(epochs=1, batch=BATCH, max_steps=STEPS),
            measuring=Measuring(every=10**6, per_client=0),
        )
        self._training = Training(small_cnn(), data, plan, self._execution)
        self._folder = RunFolder(Path(mkdtemp()))
        self._folder.create({"config": {}})
        self._number = 0

    def round(self) -> dict[str, float]:
        """One round, recorded and saved; returns its seconds by phase."""
        record = self._training.round(self._number)
        self._folder.write_round(record, self._training.server.state())
        self._number += 1
        return asdict(record.seconds)

    def close(self) -> None:
        """Stop the workers and remove what was written."""
        self._execution.close()
        rmtree(self._folder.path)


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    start = perf_counter()
    action()
    return perf_counter() - start


SIZE = 20_000_000  # coordinates: large enough that nothing else shows in the process's memory


def server_vectors(rule: Rule, clients: int) -> float:
    """Peak memory of a server's round beyond model and update, in vectors of size d; in a fresh process."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(_server_vectors, (rule.registered_name(), clients))


def _server_vectors(rule: str, clients: int) -> float:
    _round(rule, 10, clients)  # what is imported and compiled once does not depend on d
    return _round(rule, SIZE, clients) / (4 * SIZE)


def _round(rule: str, size: int, clients: int) -> float:
    """Bytes that a round of the server takes at its peak, beyond model and update."""
    layout, row, none = Layout(("weight",), ((size,),)), torch.randn(size), torch.zeros(0)
    server = Server(layout, torch.zeros(size), Buffers(none, none.long()), Schedule(), pairwise=0)
    exchange = Exchange(rule=rules.get(rule)())
    update = Update(0, row, 1)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    server.exchange(exchange, (update for _ in range(clients)), clients)
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return peak - before


def main() -> None:
    """Measure and print."""
    data = federation()
    with one_thread():
        bare, single = BarePool(data, WORKERS), BarePool(data, 1)
        processes, serial = Engine(data, Processes(workers=WORKERS)), Engine(data, Serial())
        times: dict[str, list[float]] = {"bare": [], "single": [], "processes": [], "serial": [], "overhead": []}
        for repeat in range(REPEATS + 1):
            seconds = {"bare": timed(bare.round)}
            start = perf_counter()
            phases = processes.round()
            seconds["processes"] = perf_counter() - start
            seconds["overhead"] = (seconds["processes"] - phases["local"]) / CLIENTS
            seconds["serial"] = timed(serial.round)
            seconds["single"] = timed(single.round)
            for name, value in seconds.items() if repeat else ():  # the first round warms up
                times[name].append(value)
        processes.close()
        serial.close()

    def ratio(above: str, below: str) -> float:
        return median(a / b for a, b in zip(times[above], times[below], strict=True))

    table = Table(
        "what", "measured", "wanted", title=f"{CLIENTS} clients × {STEPS} steps, {WORKERS} workers, {REPEATS} rounds"
    )
    table.add_row("images/s of processes against a bare loop", f"{ratio('bare', 'processes'):.1%}", "≥ 85 %")
    table.add_row("bare loops in two processes against one", f"{ratio('single', 'bare'):.2f} ×", "the machine's limit")
    table.add_row("processes against serial", f"{ratio('serial', 'processes'):.2f} ×", "≥ 1.6 ×")
    table.add_row("overhead per client and round", f"{1000 * median(times['overhead']):.2f} ms", "≤ 2 ms")
    for rule in (Mean(), Dampened()):
        vectors = [server_vectors(rule, clients) for clients in (3, 30)]
        label = f"server memory in vectors of size d, {rule.registered_name()}, 3 and 30 clients"
        table.add_row(label, " and ".join(f"{count:.2f}" for count in vectors), "≤ 3")
    Console().print(table)


if __name__ == "__main__":
    main()
