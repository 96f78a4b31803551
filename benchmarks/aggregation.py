"""What rules cost: sign rules beside the mean, pairwise ones beside TorchJD's, robust ones beside ByzFL's.

Everything is measured in one run on one thread, interleaved, as ratios: absolute times on a shared machine mean little.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torchjd.aggregation import CAGrad, PCGrad

from byzfl_rules import byzfl
from fedpace.aggregation import (
    AndMask,
    Bucketing,
    CentredClipping,
    ConflictFree,
    Dampened,
    GeometricMedian,
    Krum,
    Masked,
    Mean,
    Median,
    MultiKrum,
    NearestNeighbours,
    NormClipping,
    Rule,
    TrimmedMean,
    gram,
)
from fedpace.aggregation._simplex import pgd
from fedpace.core import Buffers, Layout, Update, one_line
from fedpace.server import Clipping, Exchange, Fixed, Guard, Schedule, Server

SIZES, CLIENTS, REPEATS = (1_000_000, 11_000_000), (10, 50), 7
SIGN_RULES = (Dampened(), Masked(), AndMask())
ROBUST = ((1_000_000, 10), (1_000_000, 50), (11_000_000, 10))  # beyond that ByzFL needs more memory than most have
WIDEST = 10  # rows that exist at once; more clients send them again
NO_BUFFERS = Buffers(torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def stream(rule: Rule, rows: torch.Tensor, clients: int) -> torch.Tensor:
    """An aggregate of ``clients`` updates that arrive one by one."""
    accumulator = rule.start(rows.shape[1], clients)
    for client in range(clients):
        accumulator.add(rows[client % len(rows)])
    return accumulator.finish()


def ratios(actions: dict[str, Callable[[], object]], to: str, repeats: int = REPEATS) -> dict[str, float]:
    """Median over the repeats of each action's time relative to another's in the same repeat."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(repeats + 1):
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


def pairwise_rules() -> Table:
    """ConFREE on a matrix against one Gram matrix and one combination, and against TorchJD's CAGrad and PCGrad."""
    wanted = ("≤ 1.3", "≤ 5 %", "≥ 3 (10), ≥ 1 (50)", "≥ 3 (10), ≥ 1 (50)")
    names = ("to Gram + combination", "solver", "CAGrad of TorchJD takes", "PCGrad of TorchJD takes")
    table = Table("coordinates", "clients", *names, title="Time of conflict_free")
    table.add_row("wanted", "", *wanted)
    rule = ConflictFree()
    for size, clients in product(SIZES, CLIENTS):
        rows = torch.randn(clients, size, generator=torch.Generator().manual_seed(0))
        matrix, coefficients = gram(rows).numpy(), torch.rand(clients)
        guidance = rule.guidance(matrix, np.full(clients, 1 / clients))
        found = ratios(
            {
                "conflict_free": lambda: rule(rows),  # noqa: B023  # called before the loop goes on
                "passes": lambda: (gram(rows), coefficients @ rows),  # noqa: B023
                "solver": lambda: pgd(matrix, guidance, rule.c),  # noqa: B023
                "cagrad": lambda: CAGrad(c=0.5)(rows),  # noqa: B023
                "pcgrad": lambda: PCGrad()(rows),  # noqa: B023
            },
            to="conflict_free",
        )
        ours = (f"{1 / found['passes']:.2f}", f"{found['solver']:.1%}")
        table.add_row(f"{size:,}", str(clients), *ours, f"{found['cagrad']:.1f} ×", f"{found['pcgrad']:.1f} ×")
    return table


def guard() -> Table:
    """A server's exchange whose guard shortens every second update, against one whose guard only looks at them."""
    table = Table("coordinates", "clients", "fixed", title="Time of an exchange with clipping (wanted: ≤ 1.15)")
    for size in SIZES:
        layout, rows = Layout(("w",), ((size,),)), torch.randn(WIDEST, size, generator=torch.Generator().manual_seed(0))
        rows[::2] /= 2
        lengths = iter(0.99**step * size**0.5 for step in range(1, 1000))  # what was shortened is too long again

        def exchange(clip: Clipping | None, rows: torch.Tensor = rows, layout: Layout = layout) -> None:
            server = Server(
                layout, torch.zeros(layout.size), NO_BUFFERS, Schedule(), guard=Guard(clip=clip), pairwise=0
            )
            server.exchange(Exchange(), (Update(i, row, 10) for i, row in enumerate(rows)), len(rows))

        found = ratios(
            {"free": lambda: exchange(None), "fixed": lambda: exchange(Fixed(norm=next(lengths)))},  # noqa: B023
            to="free",
        )
        table.add_row(f"{size:,}", str(WIDEST), f"{found['fixed']:.2f}")
    return table


def robust_rules() -> Table:
    """Robust rules on a matrix against ByzFL's with its defaults (three steps of Weiszfeld, ours goes to the end)."""
    table = Table("coordinates", "clients", "rule", "ByzFL takes", title="Time of robust rules (wanted: ≥ 0.67 ×)")
    found = byzfl()
    if found is None:
        table.add_row("", "", "", "not installed: pip install --no-deps byzfl")
        return table
    theirs, before = found
    for size, clients in ROBUST:
        rows, f = torch.randn(clients, size, generator=torch.Generator().manual_seed(0)), clients // 5
        pairs: dict[str, tuple[Rule, Callable[[torch.Tensor], object]]] = {
            "median": (Median(), theirs.Median()),
            "trimmed_mean": (TrimmedMean(share=0.2), theirs.TrMean(f)),
            "geometric_median": (GeometricMedian(), theirs.GeometricMedian()),
            "krum": (Krum(attackers=f - 1), theirs.Krum(f)),
            "multi_krum": (MultiKrum(attackers=f - 1), theirs.MultiKrum(f)),
            "centred_clipping": (CentredClipping(iterations=1), theirs.CenteredClipping()),
            "bucketing": (Bucketing(rule="median"), lambda u: theirs.Median()(before.Bucketing(2)(u))),
            "nearest_neighbours": (
                NearestNeighbours(attackers=f, rule=TrimmedMean(share=0.2)),
                lambda u, f=f: theirs.TrMean(f)(before.NNM(f)(u)),
            ),
            "norm_clipping": (NormClipping(), lambda u: theirs.Average()(before.Clipping()(u.clone()))),
        }
        for name, (ours, other) in pairs.items():
            table.add_row(f"{size:,}", str(clients), name, _taken(ours, other, rows))
    return table


def _taken(ours: Rule, other: Callable[[torch.Tensor], object], rows: torch.Tensor) -> str:
    """How many times as long the other one takes, or why it cannot."""
    try:
        found = ratios({"ours": lambda: ours(rows), "other": lambda: other(rows)}, to="ours", repeats=3)
    except RuntimeError as error:  # a limit of torch that they run into, or no memory is left
        return f"fails: {one_line(error)[:60]}"
    return f"{found['other']:.1f} ×"


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    Console().print(sign_rules())
    Console().print(pairwise_rules())
    Console().print(guard())
    Console().print(robust_rules())


if __name__ == "__main__":
    main()
