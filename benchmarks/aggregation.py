"""What rules cost beside the plain mean. Prints one table.

Everything is measured in one run on one thread, interleaved, as ratios: absolute times on a shared machine mean little.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from fedpace.aggregation import AndMask, Dampened, Masked, Mean, Rule

SIZES, CLIENTS, REPEATS = (1_000_000, 11_000_000), (10, 50), 7
SIGN_RULES = (Dampened(), Masked(), AndMask())
WIDEST = 10  # rows that exist at once; more clients send them again


def stream(rule: Rule, rows: torch.Tensor, clients: int) -> torch.Tensor:
    """An aggregate of ``clients`` updates that arrive one by one."""
    accumulator = rule.start(rows.shape[1], clients)
    for client in range(clients):
        accumulator.add(rows[client % len(rows)])
    return accumulator.finish()


def ratios(actions: dict[str, Callable[[], object]], to: str) -> dict[str, float]:
    """Median over the repeats of each action's time relative to another's in the same repeat."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(REPEATS + 1):
        for name, action in actions.items():
            start = perf_counter()
            action()
            if repeat:  # the first one warms up
                times[name].append(perf_counter() - start)
    return {name: median(a / b for a, b in zip(found, times[to], strict=True)) for name, found in times.items()}


def sign_rules() -> Table:
    """Sign rules as streams against the mean as a stream on the same rows."""
    names = [rule.registered_name() for rule in SIGN_RULES]
    table = Table("coordinates", "clients", *names, title="Time of a stream relative to that of mean (wanted: ≤ 1.5)")
    for size, clients in product(SIZES, CLIENTS):
        rows = torch.randn(WIDEST, size, generator=torch.Generator().manual_seed(0))
        actions: dict[str, Callable[[], object]] = {
            rule.registered_name(): lambda rule=rule, rows=rows, n=clients: stream(rule, rows, n)  # type: ignore[misc]
            for rule in (Mean(), *SIGN_RULES)
        }
        found = ratios(actions, to="mean")
        table.add_row(f"{size:,}", str(clients), *(f"{found[name]:.2f}" for name in names))
    return table


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    Console().print(sign_rules())


if __name__ == "__main__":
    main()
