"""What a large population costs when few of its clients are sampled. Prints one table.

Time is measured in one run, interleaved, as a ratio; memory in a fresh process each.
"""

from __future__ import annotations

import multiprocessing as mp
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedpace.data import load
from fedpace.engine import Cohort, Measuring, Plan, Serial
from fedpace.engine.training import Training
from fedpace.methods import LocalSGD
from fedpace.models import build

FEW, MANY, SAMPLED, IMAGES, REPEATS = 10, 500, 10, 64, 21


def training(clients: int) -> Training:
    """A run of FedAvg with LeNet on images of CIFAR-10's shape, ``IMAGES`` per client, that samples ``SAMPLED``."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients * IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, len(images))
    data = load((images, labels), test=(images[:100], labels[:100])).partition("iid", clients=clients)
    module = build("lenet", (3, 32, 32), 10, seed=0)
    local, measuring = LocalSGD(epochs=1, batch=32), Measuring(every=10**6, per_client=0)
    plan = Plan(rounds=10**6, local=local, cohort=Cohort(number=SAMPLED), measuring=measuring)
    return Training(module, data, plan, Serial().start(module, data))


def time_ratio() -> float:
    """Time of a round with many clients relative to one with few, as many sampled in both."""
    few, many = training(FEW), training(MANY)
    ratios = []
    for repeat in range(REPEATS + 1):
        seconds = []
        for run in (few, many):
            start = perf_counter()
            run.round(repeat)
            seconds.append(perf_counter() - start)
        if repeat:  # the first round warms up
            ratios.append(seconds[1] / seconds[0])
    return median(ratios)


def peak_beyond_data(clients: int) -> float:
    """Peak memory in MB of a process that runs three rounds, without the images themselves."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (clients,)) - clients * IMAGES * 32 * 32 * 3 / 1e6


def _peak(clients: int) -> float:
    torch.set_num_threads(1)
    run = training(clients)
    Path("/proc/self/clear_refs").write_text("5")  # forget how the images were made
    for number in range(3):
        run.round(number)
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return peak / 1e6


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    table = Table("what", "measured", "wanted", title=f"{MANY} clients against {FEW}, {SAMPLED} sampled in both")
    table.add_row("time of a round", f"{time_ratio():.3f} ×", "≤ 1.05 ×")
    few, many = peak_beyond_data(FEW), peak_beyond_data(MANY)
    table.add_row("peak memory without the data", f"{many:.0f} / {few:.0f} MB = {many / few:.3f} ×", "≤ 1.10 ×")
    Console().print(table)


if __name__ == "__main__":
    main()
