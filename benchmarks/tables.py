"""What a large table costs: seconds of reading a CSV file and of dealing its rows by a column. Prints one table.

``python benchmarks/tables.py [--rows 1000000] [--clients 1000]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import csv
from rich.console import Console
from rich.table import Table

from fedpace.data import Data, Federation, load

T = TypeVar("T")


def write(path: Path, rows: int, clients: int) -> None:
    """Ten columns: a client, five numbers with gaps, three categories with gaps, and the target."""
    rng = np.random.default_rng(0)

    def gaps(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=rng.random(rows) < 0.05)

    columns = {"client": pa.array(np.char.add("client ", rng.integers(0, clients, rows).astype(str)))}
    columns |= {f"number {i}": gaps(rng.normal(i, 10.0**i, rows).round(3)) for i in range(5)}
    columns |= {f"category {n}": gaps(np.char.add("value ", rng.integers(0, n, rows).astype(str))) for n in (2, 5, 20)}
    csv.write_csv(pa.table({**columns, "target": rng.integers(0, 2, rows)}), path)


def deal(data: Data, share: float) -> Federation:
    """A client per value of the first column."""
    return data.partition("by", column="client", test_share=share)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=1_000)
    options = parser.parse_args()
    table = Table("step", "seconds", title=f"{options.rows:,} rows of ten columns, {options.clients:,} clients")

    def timed(step: str, work: Callable[[], T]) -> T:
        start = perf_counter()
        result = work()
        table.add_row(step, f"{perf_counter() - start:.2f}")
        return result

    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write(path, options.rows, options.clients)
        data = timed("read the CSV file", lambda: load(path, target="target", leave_out=("client",)))
    for share in (0.0, 0.2):
        timed(f"deal it by a column and encode it, test_share = {share}", partial(deal, data, share))
    Console().print(table)


if __name__ == "__main__":
    main()
