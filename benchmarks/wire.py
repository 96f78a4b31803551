"""What each format takes on the wire and of a processor, beside adding an update up. Prints one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

import torch
from benchmarks.contest.tables import markdown, put, shown
from rich.console import Console

from fedpace.aggregation import Dampened, Mean, Rule
from fedpace.wire import wires

SIZE, REPEATS = 11_000_000, 7
TITLE = f"{SIZE:,} coordinates"
COLUMNS = ("format", "MB", "bits a coordinate", "encode, ms", "decode, ms")


def seconds(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of computing of each work, interleaved; the first time warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEATS + 1):
        for name, work in works.items():
            start = process_time()
            work()
            times[name].append(process_time() - start)
    return {name: median(found[1:]) for name, found in times.items()}


def adds(rule: Rule, update: torch.Tensor) -> Callable[[], object]:
    """Take an update into a stream that has room for many."""
    stream = rule.start(len(update), 10 * REPEATS)
    return lambda: stream.add(update, 1.0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, help="a page into which the table is put")
    options = parser.parse_args()
    torch.set_num_threads(1)
    update = torch.randn(SIZE, generator=torch.Generator().manual_seed(0)) * 1e-3
    works: dict[str, Callable[[], object]] = {"mean": adds(Mean(), update), "signs": adds(Dampened(), update)}
    for name in wires.names():
        wire = wires.get(name)()
        data = wire.encode(update, 0)
        works |= {f"{name} out": lambda wire=wire: wire.encode(update, 0)}
        works |= {f"{name} in": lambda wire=wire, data=data: wire.decode(data, SIZE)}
    found, lines = seconds(works), []
    for name in sorted(wires.names(), key=lambda name: -wires.get(name)().bytes_for(SIZE)):
        size = wires.get(name)().bytes_for(SIZE)
        spent = (f"{1e3 * found[f'{name} {way}']:.0f}" for way in ("out", "in"))
        lines.append([name, f"{size / 1e6:.2f}", f"{8 * size / SIZE:.2f}", *spent])
    added = f"To add one up takes {1e3 * found['mean']:.0f} ms, with its signs {1e3 * found['signs']:.0f} ms."
    console = Console()
    shown(TITLE, COLUMNS, lines, console)
    console.print(added)
    if options.markdown:
        put(options.markdown, "formats", markdown(TITLE, COLUMNS, lines, added))


if __name__ == "__main__":
    main()
