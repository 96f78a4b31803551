"""What a large population costs when few of its clients are sampled. Prints three tables.

Rounds are measured in one run, interleaved, as ratios; the start and memory in a fresh process each, after a small run
that wakes up everything that is not ours. Times are those of the processor: what else the machine does is not in them.
"""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedpace.data import Federation, Hands, load
from fedpace.engine import Cohort, Measuring, Plan, RunFolder, Serial
from fedpace.engine.training import Training, one_thread
from fedpace.methods import LocalSGD, Method, Scaffold
from fedpace.models import build

POPULATIONS, COHORT, FEATURES, CLASSES = (10**3, 10**4, 10**5, 10**6), 50, 8, 10
FEW, MANY, SAMPLED, IMAGES = 10, 500, 10, 64
REPEATS = 21
SGD, KEEPING = LocalSGD(epochs=1, batch=32), Scaffold(epochs=1, batch=32)

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def vectors(clients: int) -> Arrays:
    """Small examples, their labels, and where those of each client begin: one to four are each one's."""
    rng = np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(rng.integers(1, 5, clients)))
    inputs = rng.random((int(offsets[-1]), FEATURES), dtype=np.float32)
    return inputs, rng.integers(0, CLASSES, len(inputs)), offsets


def of_vectors(arrays: Arrays) -> Federation:
    """Clients in an order of their own, as if their examples were scattered."""
    inputs, labels, offsets = arrays
    order = np.random.default_rng(1).permutation(len(inputs))
    return load((inputs, labels), test=(inputs[:100], labels[:100])).partition(Hands(offsets, order))


def of_images(clients: int) -> Federation:
    """Images of CIFAR-10's shape, ``IMAGES`` per client."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients * IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, len(images))
    return load((images, labels), test=(images[:100], labels[:100])).partition("iid", clients=clients)


@contextmanager
def rounds(data: Federation, local: Method, model: str, cohort: int, *, written: bool) -> Iterator[Callable[[], None]]:
    """A run, of which each call does the next round; with a run folder where it is to be ``written``."""
    plan = Plan(
        rounds=10**6,
        local=local,
        cohort=Cohort(number=cohort),
        measuring=Measuring(every=10**6, per_client=0),
    )
    module = build(model, data.shape, CLASSES, seed=0)
    with TemporaryDirectory() as place, one_thread(), Serial().start(module, data) as execution:
        run, done = Training(module, data, plan, execution), iter(range(plan.rounds))
        if written:
            run._open(RunFolder(Path(place) / "run"), resume=False)

        def go_on() -> None:
            record = run.round(next(done))
            for listener in run._listeners:
                listener.finished_round(record)

        yield go_on


def seconds(work: Callable[[], None]) -> float:
    """How long it takes the processor."""
    start = process_time()
    work()
    return process_time() - start


def ratios(runs: Sequence[Callable[[], None]]) -> list[tuple[float, float]]:
    """Milliseconds of a round of each run, and the median of its ratios to the first one's."""
    times = np.empty((REPEATS, len(runs)))
    for repeat in range(REPEATS):
        for at in np.roll(np.arange(len(runs)), repeat):  # each of them is the first one now and then
            times[repeat, at] = seconds(runs[at])
    after = times[len(runs) :]  # the first rounds warm up
    return [(1000 * median(own), median(own / after[:, 0])) for own in after.T]


def apart(function: Callable[..., object], *arguments: object) -> object:
    """What a function returns in a process of its own."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def begun(clients: int, local: Method, written: bool) -> tuple[float, float]:
    """Seconds from arrays to the end of the first round, and the peak of memory beyond the arrays, in MB."""
    arrays = vectors(clients)
    with rounds(of_vectors(vectors(100)), local, "linear", COHORT, written=written) as go_on:
        go_on()
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak up to now
    start = process_time()
    with rounds(of_vectors(arrays), local, "linear", COHORT, written=written) as go_on:
        go_on()
        return process_time() - start, _memory("VmHWM") - before


def peak_of_images(clients: int) -> float:
    """Peak of memory, in MB, of a process that runs three rounds on images, without the images themselves."""
    with rounds(of_images(clients), SGD, "lenet", SAMPLED, written=False) as go_on:
        Path("/proc/self/clear_refs").write_text("5")  # forget how the images were made
        for _ in range(3):
            go_on()
    return _memory("VmHWM") - clients * IMAGES * 32 * 32 * 3 / 1e6


def _memory(what: str) -> float:
    return int(Path("/proc/self/status").read_text().partition(f"{what}:")[2].split()[0]) * 1024 / 1e6


def of_populations(title: str, local: Method, *, written: bool) -> Table:
    """A row for each population."""
    datas = [of_vectors(vectors(clients)) for clients in POPULATIONS]
    contexts = [rounds(data, local, "linear", COHORT, written=written) for data in datas]
    measured = ratios([context.__enter__() for context in contexts])
    for context in contexts:
        context.__exit__(None, None, None)
    table = Table(
        "clients",
        "first round after",
        "memory beyond the data",
        "a round",
        f"against {POPULATIONS[0]:,}",
        title=f"{title}, {COHORT} clients in a round",
        caption="wanted of a million: at most 1 s, 100 MB and 1.05 ×",
    )
    for clients, (time, ratio) in zip(POPULATIONS, measured, strict=True):
        start, memory = apart(begun, clients, local, written)
        table.add_row(f"{clients:,}", f"{start:.2f} s", f"{memory:.0f} MB", f"{time:.1f} ms", f"{ratio:.3f} ×")
    return table


def on_images() -> Table:
    """A convolution model on images, where clients have data enough for some steps."""
    with (
        rounds(of_images(FEW), SGD, "lenet", SAMPLED, written=False) as few,
        rounds(of_images(MANY), SGD, "lenet", SAMPLED, written=False) as many,
    ):
        (_, _), (_, ratio) = ratios([few, many])
    small, large = (apart(peak_of_images, clients) for clients in (FEW, MANY))
    table = Table("what", "measured", "wanted", title=f"{MANY} clients against {FEW}, {SAMPLED} sampled in both")
    table.add_row("time of a round", f"{ratio:.3f} ×", "≤ 1.05 ×")
    table.add_row("peak memory without the data", f"{large:.0f} / {small:.0f} MB = {large / small:.3f} ×", "≤ 1.10 ×")
    return table


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    console = Console()
    console.print(of_populations("FedAvg", SGD, written=False))
    console.print(of_populations("SCAFFOLD with a run folder", KEEPING, written=True))
    console.print(on_images())


if __name__ == "__main__":
    main()
