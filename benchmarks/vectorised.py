"""What a client's turn costs when many train as one computation, against one after another. Prints one table.

Both are measured in one process with one thread, interleaved, as ratios: absolute times on a shared machine mean
little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedpace.core import FlatModule, derive
from fedpace.data import Federation, load
from fedpace.engine import Execution, Serial, Turn, Vectorised
from fedpace.engine.training import one_thread
from fedpace.methods import LocalSGD, Method, Scaffold
from fedpace.models import build

REPEATS = 5
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.1, "batch": 10, "epochs": 1, "weight_decay": 0.0}


@dataclass(frozen=True)
class Case:
    """So many clients with so many images of a size, a model and a method; and by how much it should be faster."""

    label: str
    model: dict[str, Any]
    local: Method
    clients: int = 1000
    pixels: int = 8
    examples: tuple[int, int] = (20, 30)
    wanted: str = ""


CASES = (
    Case("linear, SGD", {"name": "linear"}, LocalSGD(**SGD), wanted="≥ 8 ×"),
    Case("64-64-10, SGD", {"name": "mlp", "depth": 1}, LocalSGD(**SGD), wanted="≥ 2 ×"),
    Case("64-64-10, Adam", {"name": "mlp", "depth": 1}, LocalSGD(epochs=1, batch=10)),
    Case("linear, SCAFFOLD", {"name": "linear"}, Scaffold(lr=0.1, batch=10, epochs=1)),
    Case("linear, SGD, 5 to 300 images", {"name": "linear"}, LocalSGD(**SGD), clients=200, examples=(5, 300)),
    Case("linear, SGD, 10 clients", {"name": "linear"}, LocalSGD(**SGD), clients=10),
    Case("small_cnn, GroupNorm, SGD, 16 × 16", {"name": "small_cnn", "norm": "group"}, LocalSGD(**SGD), 50, 16),
)


def federation(case: Case) -> Federation:
    """Noise, because only the time counts."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(*case.examples, case.clients, endpoint=True)
    images = rng.integers(0, 256, (sum(sizes), case.pixels, case.pixels, 1), dtype=np.uint8)
    labels = rng.integers(0, 10, sum(sizes))
    together = load((images, labels), test=(images[:10], labels[:10])).partition("iid", clients=1)
    (whole,) = together.clients
    shards = tuple(replace(whole, indices=own) for own in np.split(whole.indices, np.cumsum(sizes)[:-1]))
    return replace(together, clients=shards, client_names=tuple(map(str, range(case.clients))))


def seconds(execution: Execution, turns: list[Turn], start: FlatModule) -> tuple[float, float]:
    """Seconds of the clock and of the processor for all turns."""
    clock, processor = perf_counter(), process_time()
    for update in execution.run(turns, start.vector, start.buffers):
        if update.failure is not None:
            raise RuntimeError(update.failure)
    return perf_counter() - clock, process_time() - processor


def measured(case: Case) -> tuple[str, ...]:
    """Microseconds of the processor per client, one by one and together, and both ratios."""
    data, executors = federation(case), (Serial(), Vectorised())
    start = FlatModule(build(case.model, data.shape, 10, seed=0))
    state = case.local.first_state(start)
    turns = [Turn(client, case.local.work(), derive(0, client), state=state) for client in range(case.clients)]
    alone, together = (executor.start(build(case.model, data.shape, 10, seed=0), data) for executor in executors)
    with alone, together:
        together.prepare(case.local)
        pairs = [(seconds(alone, turns, start), seconds(together, turns, start)) for _ in range(REPEATS + 1)][1:]
        if together.notes:
            raise RuntimeError(together.notes[0])
    clock, processor = (median(one[kind] / other[kind] for one, other in pairs) for kind in (0, 1))
    each = (f"{1e6 * median(pair[which][1] for pair in pairs) / case.clients:,.0f} µs" for which in (0, 1))
    return (*each, f"{processor:.1f} ×", f"{clock:.1f} ×", case.wanted)


def main() -> None:
    """Measure and print."""
    columns = ("model and steps", "clients", "serial", "vectorised", "faster (CPU)", "faster (clock)", "wanted")
    table = Table(*columns, title="One epoch in batches of 10, CPU time per client, one thread")
    with one_thread():
        for case in CASES:
            table.add_row(case.label, str(case.clients), *measured(case))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
