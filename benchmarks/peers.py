"""fedpace side by side with its peers, on the same data, model and steps. Prints a table for each set-up.

``python -m benchmarks.peers [--only A,D] [--workers 1] [--repeats N] [--quick] [--markdown docs/performance.md]``

Every contestant stays up in processes of its own, of one thread each, and all take turns, a round each: ratios are
medians over rounds, with their quartiles. Peers are installed into an environment of their own the first time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contest import tables
from benchmarks.contest.environment import Environment, prepared
from benchmarks.contest.process import Contestant, Failed, Running
from benchmarks.contest.setups import SET_UPS, Job, SetUp, write_data
from benchmarks.contest.tables import Row
from rich.console import Console

from fedpace.data.sources._cache import cache_folder
from fedpace.engine.executors import cores, executors

FEDPACE = Contestant("fedpace", "ours")
COSINES = Contestant("fedpace, all pairs compared", "ours", "cosines")
VECTORISED = Contestant("fedpace, vectorised", "ours", "vectorised")
BARE = Contestant(tables.BARE, "bare", ranked=True)
COMPUTE = Contestant(tables.COMPUTE, "bare", "compute")
STACKED = Contestant("torch.func.vmap, a prototype", "stacked")
PFL = Contestant("pfl-research", "pfl_research", peer="pfl", ranked=True)
BLAZE = Contestant("BlazeFL", "blaze", "serial", peer="blazefl")
BLAZE_THREADS = Contestant("BlazeFL, threads", "blaze", "threads", peer="blazefl")
BLAZE_PROCESSES = Contestant("BlazeFL, processes", "blaze", "processes", peer="blazefl")
FLOWER = Contestant("Flower with Ray", "flower_ray", peer="flwr")
MOST_NODES = 10_000  # that Flower's simulation holds in memory within seconds


def contestants(set_up: SetUp, workers: int) -> list[Contestant]:
    """Who takes part in a set-up, if all peers are there."""
    flower = [FLOWER] if set_up.clients <= MOST_NODES else []
    if workers > 1:
        return [FEDPACE, BARE, PFL, BLAZE_THREADS, BLAZE_PROCESSES, *flower]
    wanted = {
        COSINES: set_up.cosines,
        VECTORISED: VECTORISED.option in executors.names(),
        COMPUTE: set_up.unit == "ms per client beyond compute",
        STACKED: set_up.stacked > 0,
    }
    ours = [FEDPACE, *(one for one in (COSINES, VECTORISED) if wanted[one])]
    return [*ours, BARE, *(one for one in (COMPUTE, STACKED) if wanted[one]), PFL, BLAZE, *flower]


def measured(job: Job, chosen: Sequence[Contestant], python: str, console: Console) -> list[Row]:
    """Rounds of all in turns; the first one of each warms up. Who fails is named and left out."""
    with ExitStack() as stack:
        running: dict[Contestant, Running] = {}
        seconds: dict[Contestant, list[float]] = {}
        for contestant in chosen:
            try:
                running[contestant] = Running(contestant, job, python)
            except Failed as reason:
                console.print(f"{contestant.label} takes no part in {job.set_up.name}: {reason}", markup=False)
                continue
            seconds[contestant] = []
            stack.callback(running[contestant].stop)
        for repeat in range(job.set_up.repeats + 1):
            for contestant in list(seconds):
                try:
                    spent = running[contestant].round()
                except Failed as reason:
                    console.print(f"{contestant.label} failed in {job.set_up.name}: {reason}", markup=False)
                    del seconds[contestant]
                    continue
                if repeat:
                    seconds[contestant].append(spent)
        return [
            Row(one.label, seconds[one], running[one].start_up, running[one].memory, one.peer is not None)
            for one in seconds
        ]


def run(set_up: SetUp, workers: Sequence[int], environment: Environment, page: Path | None) -> None:
    """Measure a set-up, print its tables, and put them into a page."""
    console = Console()
    with TemporaryDirectory(prefix="fedpace-peers-") as folder:
        write_data(set_up, Path(folder))
        for count in workers:
            chosen = [one for one in contestants(set_up, count) if one.peer is None or one.peer in environment.versions]
            rows = measured(Job(set_up, Path(folder), workers=count), chosen, environment.python, console)
            columns, lines = tables.headed(set_up), tables.cells(set_up, rows)
            title = f"{set_up.name}, {'1 process' if count == 1 else f'{count} workers'}"
            below = f"{set_up.about}. {set_up.repeats} round(s) of each; {environment}; {cores()} cores."
            tables.shown(title, columns, lines, console)
            console.print(below, "\n")
            if page is not None:
                tables.put(page, title, tables.markdown(f"**{title}**", columns, lines, below))


def main() -> None:
    """Read the options, prepare the peers, measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="set-ups, by their names or what is before the dash: A,B,C,D,E,P")
    parser.add_argument("--workers", type=int, help="1 or 2; by default each set-up's own")
    parser.add_argument("--repeats", type=int, help="rounds that are measured of each contestant")
    parser.add_argument("--quick", action="store_true", help="a tenth of the cohort, one round")
    parser.add_argument("--environment", type=Path, default=cache_folder() / "peers", help="where peers are installed")
    parser.add_argument("--python", help="the interpreter for a new environment; all peers can be had for 3.12")
    parser.add_argument("--markdown", type=Path, help="a page into which the tables are put between marks")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [one.name for one in SET_UPS]
    chosen = [one for one in SET_UPS if {one.name, one.name.partition("-")[0]} & set(names)]
    environment = prepared(options.environment, options.python)
    print(environment)
    for set_up in chosen:
        found = set_up.quick() if options.quick else set_up
        found = replace(found, repeats=options.repeats or found.repeats)
        run(
            found, [count for count in found.workers if options.workers in (None, count)], environment, options.markdown
        )


if __name__ == "__main__":
    main()
